"""An attempt's upstream call: where it goes, and how its reply is read into the attempt."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import TypeVar

from ..engine import upstream_answers
from ..engine.attempt import Attempt
from ..engine.exchange import Exchange
from ..engine.headers import RawHeaders
from ..engine.tier_view import needs
from ..engine.upstream import CHAT_PATH, Response, Upstream, UpstreamError
from ..engine.verdicts import Failure, Verdict
from ..escalation.cloud import CHAT_PATH as DIRECT_PATH
from . import response_headers
from .answer import Answer
from .limits import Limits
from .services import Services

Result = TypeVar("Result")
_MAX_ERROR_BODY = 1024 * 1024


async def read(
    attempt: Attempt,
    response: Response,
    exchange: Exchange,
    *,
    our_key: bool,  # the API key in the headers is ours, not the client's
    answer: Answer,
    limits: Limits,
) -> Verdict | None:
    """Read the reply into the attempt; return what ended it early, None: its end.

    What may go out at once goes to ``answer``; ``limits`` get all that comes. Raises
    ``UpstreamError``.
    """
    if response.status >= 300:
        return await _failure(attempt, response, exchange, our_key)
    attempt.public = response_headers.public(response.headers)
    if b"event-stream" in response.header(b"content-type").lower():
        await _read_stream(attempt, response, answer, limits)
    else:
        body = await response.read()
        attempt.first_byte = asyncio.get_running_loop().time()
        take = partial(_take_whole, attempt, body, tools=bool(exchange.request.tools))
        return await in_thread(take) if attempt.is_slow_to_feed(body) else take()
    return attempt.verdict


def _take_whole(attempt: Attempt, body: bytes, *, tools: bool) -> Verdict | None:
    completion = upstream_answers.completion_in(
        body, speaks_after_result=attempt.speaks_after_result, tools=tools
    )
    if not isinstance(completion, dict):
        return completion
    attempt.take_completion(completion)
    return attempt.verdict


async def _read_stream(
    attempt: Attempt, response: Response, answer: Answer, limits: Limits
) -> None:
    clock, task = asyncio.get_running_loop().time, asyncio.current_task()
    while not attempt.over:
        if task is not None and task.cancelling():
            await asyncio.sleep(0)  # or threads would put the cancellation off without end
        data = await response.next_bytes()
        now = clock()
        if attempt.first_byte is None and data:
            attempt.first_byte = now
        take = partial(attempt.feed, data) if data else attempt.end
        if attempt.is_slow_to_feed(data):
            limits.note_bytes(now)
            out = await _encoded_in_thread(take, answer)
        else:
            out = take()
        if out:
            await answer.send(out)
            # The wait for a slow client is no silence of the model.
            now = answer.last_write
        limits.note_bytes(now)
        del data, out  # free their memory while the next piece is awaited


async def _failure(
    attempt: Attempt, response: Response, exchange: Exchange, our_key: bool
) -> Verdict:
    return upstream_answers.failure_of_status(
        response.status,
        response.headers,
        await response.read(_MAX_ERROR_BODY, cut=True),
        our_key=our_key or exchange.tier in exchange.route.direct,
        our_choice=bool(exchange.route.tiers),
        needs=needs(exchange.request),
        speaks_after_result=attempt.speaks_after_result,
    )


def way_to(
    services: Services, exchange: Exchange, headers: RawHeaders
) -> tuple[Upstream, str, RawHeaders]:
    """Return where a call on the exchange's tier goes, with its path and headers.

    ``headers``: those for LiteLLM; a cloud that is called directly gets none of them. Raises
    ``UpstreamError`` if there is no key for that cloud.
    """
    cloud = services.cloud
    if cloud is not None and exchange.tier in exchange.route.direct:  # LiteLLM doesn't list it
        return cloud.upstream, DIRECT_PATH, cloud.headers()
    return services.upstream, CHAT_PATH, headers


async def send(
    services: Services, exchange: Exchange, way: tuple[Upstream, str, RawHeaders], content: bytes
) -> Response:
    """Send a request on a way; return the answer once its headers are there.

    Raises ``UpstreamError``.
    """
    upstream, path, headers = way
    # The call id is LiteLLM's own; a cloud that is called directly doesn't get it.
    call_id = exchange.id if upstream is services.upstream else None
    return await upstream.send("POST", path, headers, content, call_id=call_id)


async def in_thread(work: Callable[[], Result]) -> Result:
    """Run work on an attempt in a thread.

    A cancellation arrives at the caller's next wait: the work ends first, and its result counts.
    """
    running = asyncio.ensure_future(asyncio.to_thread(work))
    cancelled = False
    while not running.done():
        try:
            await asyncio.wait([running])
        except asyncio.CancelledError:
            cancelled = True
    if cancelled and (task := asyncio.current_task()) is not None:
        task.uncancel()
        task.cancel()
    return running.result()


async def _encoded_in_thread(work: Callable[[], bytes], answer: Answer) -> bytes:
    """Run work that writes bytes of the reply in a thread."""
    answer.encoding = True
    try:
        return await in_thread(work)
    finally:
        answer.encoding = False


def failed(error: UpstreamError) -> Failure:
    return Failure("unreachable" if error.unreachable else "server_error", error.message)
