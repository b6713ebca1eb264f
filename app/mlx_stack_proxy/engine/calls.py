"""The upstream calls of one exchange: each waits for its turn, is made, and its reply is read.

Before a call, in this order: the books set tokens aside, the earlier call's connection is closed,
the back-off passes, and the tier's queue gives a place. Then ``decisions.py`` may still refuse the
call, because time or the tier's state has changed. While the call runs, its bytes go through the
attempt to the client. A time limit or the client's leaving interrupts it at any moment; then the
connection is closed at once, so that the model stops.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

from ..escalation.breaker import TierCall
from ..escalation.cloud import CHAT_PATH as DIRECT_PATH
from ..escalation.tier_queue import QueueTimeout
from ..telemetry import accounts
from ..telemetry.observers import Observer
from ..token_budget.books import Books
from . import overflow, response_headers, upstream_answers
from .answer import Answer
from .attempt import Attempt
from .deadlines import opinion_until
from .decisions import Decisions
from .exchange import Exchange
from .headers import RawHeaders
from .services import Services
from .tier_view import needs
from .timers import Timers
from .upstream import CHAT_PATH, Response, Upstream, UpstreamError
from .verdicts import LeftOpen, UpstreamFailed, Verdict
from .watch import Watch

_MAX_ERROR_BODY = 1024 * 1024


@dataclass(slots=True, kw_only=True, eq=False)
class Calls:
    """Makes the calls of one exchange, one after the other. Times are the event loop's."""

    services: Services
    exchange: Exchange
    headers: RawHeaders  # to send to LiteLLM
    our_key: bool  # the API key in the headers is ours, not the client's
    # When the whole request was there, moved later by the wait in a queue; None: the overhead,
    # which is counted from then, has been observed.
    arrived: float | None
    answer: Answer
    books: Books
    decisions: Decisions
    watch: Watch
    timers: Timers
    observer: Observer | None
    clock: Callable[[], float]
    # When the attempt's call began. None: the attempt has made no call so far, or the runner has
    # noted how the call ended. So it says both whether a call was made and since when.
    began: float | None = None
    tier_call: TierCall | None = None  # the same call, for the tier's breaker
    first_byte: float | None = None  # when the call's reply began; None: no byte has come
    waited: float = 0.0  # seconds waited for a place on the tier
    placed: bool = True  # whether the tier gave that place
    _response: Response | None = None  # open until :meth:`close`
    _whole: bool = False  # the reply came to its end, so that the connection can be kept

    async def make(self, attempt: Attempt, backoff: float) -> Verdict | None:
        """Make an attempt's call and read its reply; return what ended it early, None: its end.

        ``backoff``: seconds of back-off. Raises :class:`~.watch.ClientLeft`.
        """
        self.waited, self.placed = 0.0, True
        settings = self.services.settings
        self.timers.opinion_until = opinion_until(self.exchange, settings, self.clock())
        try:
            verdict = await self._make_in_turn(attempt, backoff)
            await self.watch.settle()
            if not isinstance(verdict, UpstreamFailed):
                return verdict
            return overflow.measured(verdict, attempt.request, self.exchange.request, attempt.reply)
        except asyncio.CancelledError:
            interruption = self.watch.interruption()
            self.timers.end()
            await self.close()  # now, for the client may be slow to take the error
            return None if isinstance(interruption, LeftOpen) else interruption
        except QueueTimeout as error:
            self.waited, self.placed = error.seconds, False
            message = f"tier {attempt.request.tier}: {error}"
            return UpstreamFailed(error.reason, message, retry_after=error.seconds)
        finally:
            self.timers.end()

    async def close(self) -> None:
        """Close the response; if the reply is whole, its connection is kept for other calls."""
        response, self._response = self._response, None
        if response is None:
            return
        try:
            if self._whole:
                await response.drain()
        finally:
            await response.aclose()

    def end_for_tier(self) -> None:
        """Tell the tier's breaker that the call is over, once it knows how the call ended."""
        call, self.tier_call = self.tier_call, None
        if call is not None:
            self.services.tier_states.end(call)

    # Before the call

    async def _make_in_turn(self, attempt: Attempt, backoff: float) -> Verdict | None:
        """Make the call once the tier has a free place. Raises :class:`QueueTimeout`."""
        tier, services = attempt.request.tier, self.services
        refusal = await self.books.set_aside(tier, attempt.request.body)
        attempt.notes["Budget-Warning"] = self.books.warning
        if refusal is not None:
            return refusal
        await self.close()  # the earlier attempt's response
        if backoff:
            await asyncio.sleep(backoff)
        queued_at = self.clock()
        request = self.exchange.request
        async with services.queues.place(tier, request.session.hash, request.owner):
            self.waited = self.clock() - queued_at
            if self.arrived is not None:
                self.arrived += self.waited
            if failure := await self.decisions.before_call(self.clock()):
                return failure
            if self.exchange.route.is_cloud(tier, services.settings):
                attempt.notes["Cloud"] = "true"
            self.tier_call = services.tier_states.begin(tier)
            try:
                way = way_to(services, self.exchange, self.headers)
            except UpstreamError as error:
                return _failed(error)
            return await self._call(attempt, *way)

    @property
    def _is_direct(self) -> bool:
        return self.exchange.tier in self.exchange.route.direct

    # The call

    async def _call(
        self, attempt: Attempt, upstream: Upstream, path: str, headers: RawHeaders
    ) -> Verdict | None:
        now = self.began = self.clock()
        self.first_byte = None
        self.timers.begin(attempt, now)
        self._whole = False
        self._observe_overhead()
        verdict: Verdict | None
        try:
            if self.observer is not None:
                headers = self.observer.call_begins(attempt.request.tier, headers)
            # The call id is LiteLLM's own; a cloud that is called directly doesn't get it.
            call_id = self.exchange.id if upstream is self.services.upstream else None
            content = attempt.take_content()
            response = await upstream.send("POST", path, headers, content, call_id=call_id)
            del content
            self._response = response
            if self.observer is not None:
                self.observer.answered(response)
            verdict = await self._read(attempt, response)
        except UpstreamError as error:
            # Once every choice has its finish_reason, a lost connection does the reply no harm.
            verdict = None if attempt.finished else _failed(error)
        self._whole = verdict is None
        if verdict is not None:
            await self.close()  # the model must stop now, not when the client is told
        return verdict

    def _observe_overhead(self) -> None:
        """Observe the seconds before the exchange's first call, less the waits for others."""
        if self.arrived is not None:
            overhead = self.clock() - self.arrived - self.books.waited
            self.services.metrics.overhead.observe(overhead)
            self.arrived = None

    async def _read(self, attempt: Attempt, response: Response) -> Verdict | None:
        if response.status >= 300:
            return upstream_answers.failure_of_status(
                response.status,
                response.headers,
                await response.read(_MAX_ERROR_BODY, cut=True),
                our_key=self.our_key or self._is_direct,
                our_choice=bool(self.exchange.route.tiers),
                needs=needs(self.exchange.request),
                speaks_behind_result=attempt.speaks_behind_result,
            )
        attempt.public = response_headers.public(response.headers)
        content_type = response.header(b"content-type").lower()
        if b"event-stream" in content_type:
            return await self._read_stream(attempt, response)
        return self._take_json(attempt, await response.read())

    async def _read_stream(self, attempt: Attempt, response: Response) -> Verdict | None:
        first = True
        while not attempt.over:
            data = await response.next_bytes()
            now = self.clock()
            if first and data:
                first = False
                self._observe_first_byte(now)
            out = attempt.feed(data) if data else attempt.end()
            if out:
                await self.answer.send(out)
                # The wait for a slow client is no silence of the model.
                now = self.answer.last_write
            self.timers.heard_at = now
            del data, out  # free their memory while the next piece is awaited
        return attempt.verdict

    def _take_json(self, attempt: Attempt, body: bytes) -> Verdict | None:
        self._observe_first_byte(self.clock())
        completion = upstream_answers.completion_in(
            body,
            speaks_behind_result=attempt.speaks_behind_result,
            tools=bool(self.exchange.request.tools),
        )
        if not isinstance(completion, dict):
            return completion
        attempt.reply.whole = True
        attempt.take_completion(completion)
        return attempt.verdict

    def _observe_first_byte(self, now: float) -> None:
        began = self.exchange.started if self.began is None else self.began
        tier = accounts.tier_label(self.exchange)
        self.services.metrics.first_token.labels(tier).observe(now - began)
        self.first_byte = now


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


def _failed(error: UpstreamError) -> UpstreamFailed:
    return UpstreamFailed("server_error", error.message, unreachable=error.unreachable)
