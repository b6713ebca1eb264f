"""Makes an exchange's upstream calls within its time limits, and reads their replies.

The driver uses :class:`Calls` for a client's attempts, ``loop_question.py`` for its one question.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable
from functools import partial
from typing import TypeVar

from ..engine import overflow, upstream_answers
from ..engine.attempt import Attempt
from ..engine.exchange import Exchange
from ..engine.headers import RawHeaders
from ..engine.outcome import Outcome
from ..engine.tier_view import needs
from ..engine.upstream import CHAT_PATH, Response, UpstreamError
from ..engine.verdicts import Cut, Failure, Verdict
from ..escalation.cloud import CHAT_PATH as DIRECT_PATH
from ..escalation.tier_queue import QueueTimeout
from ..telemetry import accounts
from ..telemetry.observers import Observer
from ..wire.usage import output_limit
from . import response_headers
from .answer import Answer
from .services import Services
from .time_limits import TimeLimits

Result = TypeVar("Result")
_MAX_ERROR_BODY = 1024 * 1024


class Calls:
    """The upstream calls of one exchange, one after another."""

    def __init__(
        self,
        services: Services,
        exchange: Exchange,
        answer: Answer,  # receives what may go out at once
        limits: TimeLimits,
        *,
        headers: RawHeaders,  # for LiteLLM
        our_key: bool,  # the headers' API key is ours, not the client's
        observer: Observer | None = None,
    ) -> None:
        self._services = services
        self._exchange = exchange
        self._answer = answer
        self._limits = limits
        self._headers = headers
        self._our_key = our_key
        self._observer = observer
        self._clock = asyncio.get_running_loop().time
        self._response: Response | None = None  # of the newest call, until it is closed
        self._is_complete = False  # that response was read completely: its connection can be reused

    async def run(
        self, attempt: Attempt, call_in_turn: Callable[[], Awaitable[Verdict | None]]
    ) -> Verdict | None:
        """Run an attempt to its end; return the verdict on it.

        ``call_in_turn``: waits for the attempt's turn and calls :meth:`make`; returns what ended
        the reply early, or why no call was made. Raises :class:`~.watch.ClientLeft`.
        """
        verdict = attempt.on_request()
        if verdict is None:
            verdict = await self._within_limits(attempt, call_in_turn())
            if verdict is None or isinstance(verdict, Cut):
                verdict = await self._judge(attempt)
        return verdict

    async def _within_limits(
        self, attempt: Attempt, called: Awaitable[Verdict | None]
    ) -> Verdict | None:
        limits, sent = self._limits, attempt.request
        limits.await_turn(self._clock())
        try:
            verdict = await self._verdict_or_limit(await called)
            if not isinstance(verdict, Failure):
                return verdict
            return overflow.measured(verdict, sent, self._exchange.request, attempt.reply)
        except asyncio.CancelledError:
            interruption = limits.interruption()
            limits.end_call()
            await self.close()  # at once, because the client may read the error slowly
            return interruption
        except QueueTimeout as error:
            attempt.waited, attempt.placed = error.seconds, False
            message = f"tier {sent.tier}: {error}"
            return Failure(error.reason, message, retry_after=error.seconds)
        finally:
            limits.end_call()

    async def make(self, attempt: Attempt) -> Verdict | None:
        """Send the request and read the reply; return what ended it early, or None."""
        self._services.tier_states.begin(attempt)
        self._is_complete = False
        try:
            verdict = await self._send_and_read(attempt)
        except UpstreamError as error:
            # Once every choice has its finish_reason, a lost connection is harmless.
            verdict = None if attempt.finished else failed(error)
        self._is_complete = verdict is None
        if verdict is not None:
            await self.close()  # the model must stop now
        return verdict

    async def _send_and_read(self, attempt: Attempt) -> Verdict | None:
        services, exchange, observer = self._services, self._exchange, self._observer
        upstream, path, headers = services.upstream, CHAT_PATH, self._headers
        call_id: str | None = exchange.request.id
        if services.cloud is not None and exchange.tier in exchange.request.route.direct:
            # LiteLLM doesn't list this cloud, so it gets its own key only, and no LiteLLM id.
            upstream, path, headers = services.cloud.upstream, DIRECT_PATH, services.cloud.headers()
            call_id = None
        attempt.began = self._clock()
        self._limits.begin_call(attempt, attempt.began)
        if observer is not None:
            headers = observer.call_begins(attempt.request, headers)
        self._response = response = await upstream.send(
            "POST", path, headers, attempt.take_content(), call_id=call_id
        )
        if observer is not None:
            observer.answered(response)
        our_key = self._our_key
        return await read(
            attempt, response, exchange, our_key=our_key, answer=self._answer, limits=self._limits
        )

    async def _judge(self, attempt: Attempt) -> Verdict | None:
        """Judge, in a thread if it would block the event loop."""
        if not attempt.is_slow():
            return attempt.settle()
        return await self._verdict_or_limit(await in_thread(attempt.settle))

    async def _verdict_or_limit(self, verdict: Verdict | None) -> Verdict | None:
        """Return the verdict, or that of a limit reached while a thread worked.

        Such a limit never discards a good reply. Raises :class:`~.watch.ClientLeft`.
        """
        try:
            await self._limits.settle()
        except asyncio.CancelledError:
            interruption = self._limits.interruption()
            return verdict if verdict is None else interruption
        return verdict

    async def close(self) -> None:
        """Close the response; the connection of a complete reply is reused."""
        response, self._response = self._response, None
        if response is None:
            return
        try:
            if self._is_complete:
                await response.drain()
        finally:
            await response.aclose()

    def note_end(self, attempt: Attempt, outcome: Outcome | None) -> None:
        """Report an attempt's end to the tier's breaker; after a failure, watch the tier.

        ``outcome``: None: it is unknown how the call would have ended.
        """
        if attempt.at == math.inf:  # no call was made
            return
        services, exchange = self._services, self._exchange
        if outcome is not None:
            output = output_limit(attempt.request.body) or 0
            event = services.tier_states.note(attempt, outcome, exchange.request, output)
            if isinstance(outcome.verdict, Failure) and not outcome.verdict.answered:
                services.recovery.watch(attempt.tier)
            elif exchange.strict:
                services.tier_states.note_strict(attempt.tier)
            elif exchange.hint_in_tool_result:
                # Upstream accepted our words in a tool's result, after refusing a user message.
                accounts.note_hint_refused(services, exchange)
            if event is not None:
                accounts.record_event(services, *event, exchange)
        services.tier_states.end(attempt)


async def read(
    attempt: Attempt,
    response: Response,
    exchange: Exchange,
    *,
    our_key: bool,  # the headers' API key is ours, not the client's
    answer: Answer,
    limits: TimeLimits,
) -> Verdict | None:
    """Read the reply into the attempt; return what ended it early, or None.

    Bytes that may go out at once go to ``answer``; ``limits`` learns of all bytes. Raises
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
        body, words_follow_result=attempt.words_follow_result, tools=tools
    )
    if not isinstance(completion, dict):
        return completion
    attempt.take_completion(completion)
    return attempt.verdict


async def _read_stream(
    attempt: Attempt, response: Response, answer: Answer, limits: TimeLimits
) -> None:
    clock, task = asyncio.get_running_loop().time, asyncio.current_task()
    while not attempt.over:
        if task is not None and task.cancelling():
            await asyncio.sleep(0)  # otherwise threads could delay a cancellation forever
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
            # Time spent waiting for a slow client is not silence of the model.
            now = answer.last_write
        limits.note_bytes(now)
        del data, out  # free the memory while waiting for the next bytes


async def _failure(
    attempt: Attempt, response: Response, exchange: Exchange, our_key: bool
) -> Verdict:
    return upstream_answers.failure_of_status(
        response.status,
        response.headers,
        await response.read(_MAX_ERROR_BODY, cut=True),
        our_key=our_key or exchange.tier in exchange.request.route.direct,
        our_choice=bool(exchange.request.route.tiers),
        needs=needs(exchange.request),
        words_follow_result=attempt.words_follow_result,
    )


async def in_thread(work: Callable[[], Result]) -> Result:
    """Run work on an attempt in a thread.

    A cancellation takes effect at the caller's next wait: the work finishes, and its result counts.
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
