"""Runs one exchange, from its first attempt to its last byte.

:meth:`Driver.run` shows its phases: open the books and choose a tier; for each attempt rewrite the
request, wait for a place, call, judge, and decide what follows (``course.py`` has that loop); close
the books; deliver. The driver decides nothing itself: the stages choose the tier and judge the
replies (``stages.py``), ``next_step.py`` says what follows, and ``limits.py`` when a wait has been
too long.
"""

from __future__ import annotations

import asyncio
import math
import random
from functools import partial

from ..engine import overflow
from ..engine.attempt import Attempt
from ..engine.downstream import Downstream
from ..engine.exchange import Exchange
from ..engine.failures import error_of
from ..engine.headers import RawHeaders
from ..engine.outcome import Figures, Incident, Outcome
from ..engine.steps import Deliver, DeliverEarlier, Fail, LastStep, PassOn, Retry, Step, outcome_of
from ..engine.tier_view import TierView
from ..engine.upstream import Response, UpstreamError
from ..engine.verdicts import Failure, LoopDetected, Verdict, reason_of, rejected
from ..engine.watch import ClientLeft, Receive
from ..errors import shutting_down
from ..escalation.tier_queue import QueueTimeout
from ..telemetry import accounts, observers
from ..telemetry.token_rates import Writing
from ..wire.prompt_size import BYTES_PER_OUTPUT_TOKEN
from . import decisions
from .answer import Answer
from .books import Books
from .call import failed, in_thread, read, send, way_to
from .course import Course
from .limits import Limits
from .services import Services
from .tries import JITTER


class Driver(Course):
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
        settings = services.settings
        report = partial(accounts.stage_failed, services)
        super().__init__(exchange, settings, services.stages, report)
        self._services = services
        self._headers = headers
        self._our_key = our_key
        # Moved later by each wait in a queue; None: the overhead since then has been observed.
        self._arrived: float | None = arrived
        self._clock = asyncio.get_running_loop().time
        self._books = self._open_books(services, exchange)
        self._answer = Answer(exchange, downstream, services.memory, settings.stream.metadata)
        leaves_silent = partial(decisions.leaves_silent, services, exchange, self._books)
        self._limits = Limits(receive, services, exchange, self._answer, leaves_silent)
        self._observer = observers.of(exchange, services.observers, report)
        self._running: Attempt | None = None  # the newest attempt, until its outcome is noted
        self._response: Response | None = None  # of the newest call, until it is closed
        self._whole = False  # that response came to its end, so that its connection can be kept
        self._books_closed = False
        self.outcome = "error"  # how the exchange ended, as one word for metrics

    _open_books = Books

    async def run(self) -> None:
        """Run the exchange until the client has its last byte or has left."""
        self._services.exchanges.add(self)
        self._limits.start()
        try:
            try:
                refusal = await self._open()
                step = refusal or await self._to_last_step()
            except asyncio.CancelledError:  # outside a call, such as while the store is awaited
                step = Fail(error_of(self._exchange, self._limits.interruption()))
            self._limits.stop()
            await self._close_books(outcome_of(step), step)
            await self._deliver(step)
            self.outcome = outcome_of(step)
        except ClientLeft:
            self._note_client_left()
        except asyncio.CancelledError:
            if not self._limits.client_left:
                raise
            self._note_client_left()
        finally:
            await self._end()

    async def _open(self) -> Fail | None:
        """Read the session and choose the first tier; return the refusal if no tier may be used."""
        exchange = self._exchange
        exchange.began = await self._books.open()
        start = await decisions.start(self._services, exchange, self._books)
        if isinstance(start, Failure):
            return Fail(error_of(exchange, start))
        exchange.start = start
        if start.reason:
            first_tier = exchange.request.route.first
            accounts.note_escalated(self._services, exchange, first_tier, start.reason)
        return None

    # Each attempt

    def _view(self) -> TierView:
        return self._services.tier_states.view()

    def _begin_attempt(self) -> Attempt:
        self._running = self._answer.newest = attempt = super()._begin_attempt()
        return attempt

    async def _make(self, attempt: Attempt, step: Step | None) -> Verdict | None:
        """Make the call, within the limits. Raises :class:`~.watch.ClientLeft`."""
        limits, sent = self._limits, attempt.request
        limits.await_turn(self._clock())
        try:
            verdict = await self._settled(await self._make_in_turn(attempt, _backoff(step)))
            if not isinstance(verdict, Failure):
                return verdict
            return overflow.measured(verdict, sent, self._exchange.request, attempt.reply)
        except asyncio.CancelledError:
            interruption = limits.interruption()
            limits.end_call()
            await self._close_response()  # now, because the client may be slow to take the error
            return interruption
        except QueueTimeout as error:
            attempt.waited, attempt.placed = error.seconds, False
            message = f"tier {sent.tier}: {error}"
            return Failure(error.reason, message, retry_after=error.seconds)
        finally:
            limits.end_call()

    @property
    def _in_queue(self) -> tuple[str, str]:
        """The session and the client between which the tier's queue takes turns."""
        request = self._exchange.request
        return request.session.hash, request.owner

    async def _make_in_turn(self, attempt: Attempt, backoff: float) -> Verdict | None:
        """Make the call once the tier has a free place. Raises :class:`QueueTimeout`."""
        services, exchange, tier = self._services, self._exchange, attempt.tier
        refusal = await self._books.set_aside(tier, attempt.request.body)
        attempt.notes["Budget-Warning"] = self._books.warning
        if refusal is not None:
            return refusal
        await self._close_response()  # the earlier attempt's
        if backoff:
            await asyncio.sleep(backoff)
        queued_at = self._clock()
        async with services.queues.place(tier, *self._in_queue):
            attempt.waited = self._clock() - queued_at
            if self._arrived is not None:
                self._arrived += attempt.waited
            now = self._clock()
            if failure := await decisions.before_call(services, exchange, self._books, now):
                return failure
            if exchange.route.is_cloud(tier, services.settings):
                attempt.notes["Cloud"] = "true"
            services.tier_states.begin(attempt)
            self._whole = False
            try:
                verdict = await self._send_and_read(attempt)
            except UpstreamError as error:
                # Once every choice has its finish_reason, a lost connection does no harm.
                verdict = None if attempt.finished else failed(error)
            self._whole = verdict is None
            if verdict is not None:
                await self._close_response()  # the model must stop now
            return verdict

    async def _send_and_read(self, attempt: Attempt) -> Verdict | None:
        services, exchange, observer = self._services, self._exchange, self._observer
        upstream, path, headers = way_to(services, exchange, self._headers)
        attempt.began = self._clock()
        self._limits.begin_call(attempt, attempt.began)
        self._observe_overhead()
        if observer is not None:
            headers = observer.call_begins(attempt.request, headers)
        way = upstream, path, headers
        self._response = response = await send(services, exchange, way, attempt.take_content())
        if observer is not None:
            observer.answered(response)
        return await read(
            attempt,
            response,
            exchange,
            our_key=self._our_key,
            answer=self._answer,
            limits=self._limits,
        )

    def _observe_overhead(self) -> None:
        """Observe the seconds before the exchange's first call, less the waits for others."""
        if self._arrived is not None:
            overhead = self._clock() - self._arrived - self._books.waited
            self._services.metrics.observe("overhead_seconds", overhead)
            self._arrived = None

    async def _judge(self, attempt: Attempt) -> Verdict | None:
        """Judge in a thread if that would hold the event loop."""
        if not attempt.is_slow():
            return attempt.settle()
        return await self._settled(await in_thread(attempt.settle))

    async def _settled(self, verdict: Verdict | None) -> Verdict | None:
        """Return the verdict, or that of a limit which was reached while a thread worked.

        Such a limit takes no good reply. Raises :class:`~.watch.ClientLeft`.
        """
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

    def _end_attempt(self, attempt: Attempt, verdict: Verdict | None) -> None:
        """Append the outcome; update the breaker."""
        status = verdict.status if isinstance(verdict, Failure) else 200
        outcome = self._add_outcome(attempt, verdict, reason_of(verdict), status)
        if attempt.at < math.inf:
            decisions.learn(self._services, self._exchange, attempt, outcome)
        self._end_for_tier(attempt)

    def _add_outcome(
        self, attempt: Attempt, verdict: Verdict | None, reason: str | None, status: int | None
    ) -> Outcome:
        self._running, now = None, self._clock()
        called = attempt.began is not None
        began = attempt.began if attempt.began is not None else now
        unreachable = isinstance(verdict, Failure) and verdict.kind == "unreachable"
        spent = self._books.count(status, attempt.reply) if called and not unreachable else None
        figures = Figures(
            status=status,
            seconds=now - began,
            silent=(attempt.first_byte or now) - began,
            waited=attempt.waited,
            placed=attempt.placed,
            tokens_in=spent.prompt if spent is not None else 0,
            tokens_out=spent.output if spent is not None else 0,
        )
        outcome = Outcome(
            attempt.tier,
            verdict,
            reason,
            called=called,
            figures=figures,
            committed=attempt.committed,
            remarks=attempt.remarks(),
            reply=attempt.reply,
        )
        self._exchange.outcomes.append(outcome)
        if called:
            self._note_call(outcome, answered=attempt.first_byte is not None)
        return outcome

    def _note_call(self, outcome: Outcome, *, answered: bool) -> None:
        exchange, remarks = self._exchange, outcome.remarks
        if answered:
            tier = accounts.tier_label(exchange)
            self._services.metrics.observe("first_token_seconds", outcome.figures.silent, tier)
        if isinstance(exchange.second_opinion_on, LoopDetected) and not any(
            one.kind == "loop_answer" for one in remarks.incidents
        ):
            remarks.incidents.append(Incident("loop_answer", ("empty",)))

    async def _decide(self) -> Step:
        await self._books.settle_cloud()
        return await decisions.following(self._services, self._exchange, self._books, self._clock())

    def _note_step(self, step: Step) -> None:
        accounts.note_attempt(self._services, self._exchange)

    def _end_for_tier(self, attempt: Attempt) -> None:
        """Tell the tier's breaker that the call is over, once it knows how the call ended."""
        if attempt.at < math.inf:
            self._services.tier_states.end(attempt)

    def _note_client_left(self) -> None:
        self.outcome = "client_left"
        if (attempt := self._running) is not None and attempt.began is not None:
            self._add_outcome(attempt, None, "client_left", None)
            self._end_for_tier(attempt)

    # The end

    async def _close_books(self, outcome: str, step: LastStep | None = None) -> None:
        """Count the exchange and settle its budgets, before the client's last byte; only once."""
        if not self._books_closed:
            self._books_closed = True
            if len(self._exchange.recorded) < len(self._exchange.outcomes):
                accounts.note_attempt(self._services, self._exchange)  # no step has followed
            accounts.count_end(self._services, self._exchange, outcome, step)
            await self._books.close(delivered=isinstance(step, (Deliver, DeliverEarlier)))

    async def _deliver(self, step: LastStep) -> None:
        """Write what the last step says to the client: a reply or an error."""
        if isinstance(step, (PassOn, Fail)):
            await self._answer.send_error(step)
            return
        attempt = self._answer.newest
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
        if self._running is not None:
            self._end_for_tier(self._running)
        await self._close_response()
        await self._close_books(self.outcome)
        if self._observer is not None:
            self._observer.ended(self.outcome)

    # For the process

    def writing(self) -> Writing | None:
        """Return the running call's tier label, estimated output tokens so far, and seconds.

        None: no upstream call runs.
        """
        attempt = self._running
        if attempt is None or attempt.began is None:
            return None
        tokens = attempt.reply.written() // BYTES_PER_OUTPUT_TOKEN
        return accounts.tier_label(self._exchange), tokens, self._clock() - attempt.began

    def end(self) -> None:
        """End the exchange because the process stops; the client gets an error that says so."""
        self._limits.end(rejected(shutting_down()))


def _backoff(step: Step | None) -> float:
    """Return the seconds to wait before the attempt to which a step has led."""
    return step.after * random.uniform(1.0, 1.0 + JITTER) if isinstance(step, Retry) else 0.0
