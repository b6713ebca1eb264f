"""Runs one exchange, from its first attempt to its last byte.

:meth:`Driver.run` shows its phases: open the books and choose a tier; for each attempt rewrite the
request, wait for a place, call, judge, and decide what follows; close the books; deliver. Only the
driver makes attempts, and only it appends to the exchange's outcomes and steps. It decides nothing
itself: the stages choose the tier and judge the replies (``stages.py``), ``next_step.py`` says what
follows, and ``limits.py`` when a wait has been too long.
"""

from __future__ import annotations

import asyncio
import random
from functools import partial

from ..engine import overflow
from ..engine.attempt import Attempt
from ..engine.build_request import build
from ..engine.downstream import Downstream
from ..engine.exchange import Exchange, SessionStart
from ..engine.failures import error_of
from ..engine.headers import RawHeaders
from ..engine.outcome import Outcome
from ..engine.steps import (
    Deliver,
    DeliverEarlier,
    Fail,
    LastStep,
    Move,
    PassOn,
    Retry,
    outcome_of,
)
from ..engine.upstream import Response, UpstreamError
from ..engine.verdicts import (
    Cut,
    Failure,
    Verdict,
    is_doubt,
    reason_of,
    rejected,
)
from ..engine.watch import ClientLeft, Receive
from ..errors import shutting_down
from ..escalation.tier_queue import QueueTimeout
from ..telemetry import accounts, observers
from ..telemetry.token_rates import Writing
from ..wire.prompt_size import BYTES_PER_OUTPUT_TOKEN
from . import decisions
from . import loop_question as ask_loop_model
from .answer import Answer
from .books import Books
from .call import (
    UpstreamCall,
    failed,
    in_thread,
    send,
    way_to,
)
from .limits import Limits
from .services import Services
from .tries import JITTER


class Driver:
    """Runs one exchange. The edge makes one for each chat completion and awaits :meth:`run`."""

    def __init__(
        self,
        services: Services,
        exchange: Exchange,
        *,
        headers: RawHeaders,  # to send to LiteLLM
        our_key: bool,  # the API key in the headers is ours, not the client's
        downstream: Downstream,
        receive: Receive,  # the client's further messages, as ASGI gives them
        arrived: float,  # when the whole request was there, on the event loop's clock
    ) -> None:
        self._services = services
        self._exchange = exchange
        self._headers = headers
        self._our_key = our_key
        # Moved later by each wait in a queue; None: the overhead since then has been observed.
        self._arrived: float | None = arrived
        self._clock = asyncio.get_running_loop().time
        self._report_fault = partial(accounts.stage_failed, services)
        self._books = Books(services, exchange)
        metadata = services.settings.stream.metadata
        self._answer = Answer(exchange, downstream, services.memory, metadata)
        leaves_silent = partial(decisions.leaves_silent, services, exchange, self._books)
        self._limits = Limits(receive, services, exchange, self._answer, leaves_silent)
        self._observer = observers.of(exchange, services.observers, self._report_fault)
        self._attempt: Attempt | None = None  # the newest attempt
        self._doubted_attempt: Attempt | None = None  # its reply may still be delivered
        self._call: UpstreamCall | None = None  # the newest attempt's, until its outcome is noted
        self._response: Response | None = None  # of the newest call, until it is closed
        self._whole = False  # that response came to its end, so that its connection can be kept
        self._books_closed = False
        self.outcome = "error"  # how the exchange ended, as one word for metrics

    async def run(self) -> None:
        """Run the exchange until the client has its last byte or has left."""
        self._services.exchanges.add(self)
        self._limits.start()
        try:
            try:
                step = await self._to_last_step()
            except asyncio.CancelledError:  # outside a call, such as while the store is awaited
                step = Fail(error_of(self._exchange, self._limits.interruption()))
            self._limits.stop()
            await self._close_books(outcome_of(step), step)
            await self._deliver(step)
            self.outcome = outcome_of(step)
            if isinstance(step, (Deliver, DeliverEarlier)):
                ask_loop_model.ask(self._services, self._exchange, self._headers)
        except ClientLeft:
            self._note_client_left()
        except asyncio.CancelledError:
            if not self._limits.client_left:
                raise
            self._note_client_left()
        finally:
            await self._end()

    async def _to_last_step(self) -> LastStep:
        """Choose a tier and make attempts; return the step that ends the exchange."""
        exchange = self._exchange
        if refusal := await self._open():
            return Fail(error_of(exchange, refusal))
        backoff = 0.0
        while True:
            call = self._begin_attempt()
            verdict = call.attempt.on_request()
            if verdict is None:
                verdict = await self._make(call, backoff)
                if verdict is None or isinstance(verdict, Cut):
                    verdict = await self._judged(call.attempt)
            self._note_end(call, verdict)
            await self._books.settle_cloud()
            step = await decisions.following(self._services, exchange, self._books, self._clock())
            exchange.steps.append(step)
            accounts.note_step(self._services, exchange, step)
            if not isinstance(step, (Retry, Move)):
                return step
            if is_doubt(verdict):
                self._doubted_attempt = call.attempt
            jitter = random.uniform(1.0, 1.0 + JITTER)
            backoff = step.after * jitter if isinstance(step, Retry) else 0.0

    async def _open(self) -> Failure | None:
        """Read the session and choose the first tier; return the refusal if no tier may be used."""
        exchange = self._exchange
        session = await self._books.open()
        if session is not None:
            stored = bool(session.turns)
            exchange.began = SessionStart(session.first_seen, stored, session.replies)
        start = await decisions.start(self._services, exchange, self._books)
        if isinstance(start, Failure):
            return start
        exchange.start = start
        if start.reason:
            first_tier = exchange.request.route.first
            accounts.note_escalated(self._services, exchange, first_tier, start.reason)
        return None

    def _begin_attempt(self) -> UpstreamCall:
        exchange, services = self._exchange, self._services
        request = build(exchange, services.settings, services.tier_states.view())
        attempt = Attempt(exchange, request, services.stages, self._report_fault)
        self._attempt = self._answer.running = attempt
        self._call = UpstreamCall(attempt, exchange, self._our_key)
        return self._call

    # The call

    async def _make(self, call: UpstreamCall, backoff: float) -> Verdict | None:
        """Make an attempt's call and read its reply; return what ended it early, None: its end.

        ``backoff``: seconds to wait before. Raises :class:`~.watch.ClientLeft`.
        """
        limits, sent = self._limits, call.attempt.request
        limits.await_turn(self._clock())
        try:
            verdict = await self._make_in_turn(call, backoff)
            await limits.settle()
            if not isinstance(verdict, Failure):
                return verdict
            reply = call.attempt.reply
            return overflow.measured(verdict, sent, self._exchange.request, reply)
        except asyncio.CancelledError:
            interruption = limits.interruption()
            limits.end_call()
            await self._close_response()  # now, because the client may be slow to take the error
            return interruption
        except QueueTimeout as error:
            call.waited, call.placed = error.seconds, False
            message = f"tier {sent.tier}: {error}"
            return Failure(error.reason, message, retry_after=error.seconds)
        finally:
            limits.end_call()

    async def _make_in_turn(self, call: UpstreamCall, backoff: float) -> Verdict | None:
        """Make the call once the tier has a free place. Raises :class:`QueueTimeout`."""
        attempt, services, exchange = call.attempt, self._services, self._exchange
        tier, request = attempt.request.tier, exchange.request
        refusal = await self._books.set_aside(tier, attempt.request.body)
        attempt.notes["Budget-Warning"] = self._books.warning
        if refusal is not None:
            return refusal
        await self._close_response()  # the earlier attempt's
        if backoff:
            await asyncio.sleep(backoff)
        queued_at = self._clock()
        async with services.queues.place(tier, request.session.hash, request.owner):
            call.waited = self._clock() - queued_at
            if self._arrived is not None:
                self._arrived += call.waited
            now = self._clock()
            if failure := await decisions.before_call(services, exchange, self._books, now):
                return failure
            if exchange.route.is_cloud(tier, services.settings):
                attempt.notes["Cloud"] = "true"
            call.tier_call = services.tier_states.begin(tier)
            self._whole = False
            try:
                verdict = await self._send_and_read(call)
            except UpstreamError as error:
                # Once every choice has its finish_reason, a lost connection does no harm.
                verdict = None if attempt.finished else failed(error)
            self._whole = verdict is None
            if verdict is not None:
                await self._close_response()  # the model must stop now
            return verdict

    async def _send_and_read(self, call: UpstreamCall) -> Verdict | None:
        services, exchange, observer = self._services, self._exchange, self._observer
        upstream, path, headers = way_to(services, exchange, self._headers)
        call.began = self._clock()
        self._limits.begin_call(call.attempt, call.began)
        self._observe_overhead()
        if observer is not None:
            headers = observer.call_begins(call.attempt.request.tier, headers)
        way = upstream, path, headers
        self._response = response = await send(services, exchange, way, call.attempt.take_content())
        if observer is not None:
            observer.answered(response)
        return await call.read(response, self._answer, self._limits)

    def _observe_overhead(self) -> None:
        """Observe the seconds before the exchange's first call, less the waits for others."""
        if self._arrived is not None:
            overhead = self._clock() - self._arrived - self._books.waited
            self._services.metrics.overhead.observe(overhead)
            self._arrived = None

    async def _judged(self, attempt: Attempt) -> Verdict | None:
        """Let the stages mend and judge the reply; in a thread if that would hold the event loop.

        A limit that is reached meanwhile takes no good reply. Raises :class:`~.watch.ClientLeft`.
        """
        if not attempt.is_slow():
            return attempt.settle()
        verdict = await in_thread(attempt.settle)
        try:
            await self._limits.settle()
        except asyncio.CancelledError:
            interruption = self._limits.interruption()
            return verdict if verdict is None else interruption
        return verdict

    async def _close_response(self) -> None:
        """Close the response; if the reply is whole, its connection is kept for other calls."""
        response, self._response = self._response, None
        if response is None:
            return
        try:
            if self._whole:
                await response.drain()
        finally:
            await response.aclose()

    # What came of it

    def _note_end(self, call: UpstreamCall, verdict: Verdict | None) -> None:
        """Append the outcome of the attempt that ended; update the breaker, metrics and events."""
        status = verdict.status if isinstance(verdict, Failure) else 200
        outcome = self._add_outcome(call, verdict, reason_of(verdict), status)
        if call.tier_call is not None:
            decisions.learn(self._services, self._exchange, call.tier_call, outcome, call.attempt)
        self._end_for_tier(call)
        accounts.settle_incidents(self._services, self._exchange)

    def _add_outcome(
        self, call: UpstreamCall, verdict: Verdict | None, reason: str | None, status: int | None
    ) -> Outcome:
        attempt, now = call.attempt, self._clock()
        self._call = None
        called = call.began is not None
        began = call.began if call.began is not None else now
        unreachable = isinstance(verdict, Failure) and verdict.kind == "unreachable"
        spent = self._books.count(status, attempt.reply) if called and not unreachable else None
        outcome = Outcome(
            attempt.request.tier,
            verdict,
            reason,
            called=called,
            status=status,
            seconds=now - began,
            silent=(call.first_byte or now) - began,
            waited=call.waited,
            placed=call.placed,
            tokens_in=spent.prompt if spent is not None else 0,
            tokens_out=spent.output if spent is not None else 0,
            committed=attempt.committed,
            remarks=attempt.remarks(),
            reply=attempt.reply,
        )
        self._exchange.outcomes.append(outcome)
        if call.first_byte is not None:
            tier = accounts.tier_label(self._exchange)
            self._services.metrics.first_token.labels(tier).observe(call.first_byte - began)
        if called:
            accounts.count_attempt(self._services, self._exchange, outcome, spent)
            if self._observer is not None:
                self._observer.call_ended(attempt, outcome)
        return outcome

    def _end_for_tier(self, call: UpstreamCall) -> None:
        """Tell the tier's breaker that the call is over, once it knows how the call ended."""
        tier_call, call.tier_call = call.tier_call, None
        if tier_call is not None:
            self._services.tier_states.end(tier_call)

    def _note_client_left(self) -> None:
        self.outcome = "client_left"
        if (call := self._call) is not None and call.began is not None:
            self._add_outcome(call, None, "client_left", None)
            self._end_for_tier(call)

    # The end

    async def _close_books(self, outcome: str, step: LastStep | None = None) -> None:
        """Count the exchange and settle its budgets, before the client's last byte; only once."""
        if not self._books_closed:
            self._books_closed = True
            accounts.count_end(self._services, self._exchange, outcome, step)
            await self._books.close(delivered=isinstance(step, (Deliver, DeliverEarlier)))

    async def _deliver(self, step: LastStep) -> None:
        """Write what the last step says to the client: a reply or an error."""
        if isinstance(step, (PassOn, Fail)):
            await self._answer.send_error(step)
            return
        attempt = self._attempt
        if isinstance(step, DeliverEarlier):
            attempt = self._doubted_attempt
            if attempt is not None and (committed := self._exchange.committed) is not None:
                attempt.go_on_from(committed)
        assert attempt is not None
        await self._answer.deliver(attempt)

    async def _end(self) -> None:
        """Let go of all that the exchange holds, however it ended."""
        self._services.exchanges.discard(self)
        self._limits.stop()
        if self._call is not None:
            self._end_for_tier(self._call)
        await self._close_response()
        await self._close_books(self.outcome)
        if self._observer is not None:
            self._observer.ended(self.outcome)

    # For the process

    def writing(self) -> Writing | None:
        """Return the running call's tier label, estimated output tokens so far, and start time.

        None: no upstream call runs.
        """
        call = self._call
        if call is None or call.began is None:
            return None
        tokens = call.attempt.reply.written() // BYTES_PER_OUTPUT_TOKEN
        return accounts.tier_label(self._exchange), tokens, call.began

    def end(self) -> None:
        """End the exchange because the process stops; the client gets an error that says so."""
        self._limits.end(rejected(shutting_down()))
