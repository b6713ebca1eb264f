"""Runs one exchange, from its first attempt to its last byte.

:meth:`Driver.run` shows its phases: open the books and choose a tier; for each attempt rewrite the
request, wait for a place, call, judge (``calls.py``), and decide what follows; close the books;
deliver. The driver decides nothing itself: the stages choose the tier and judge the replies
(``stages.py``), ``next_step.py`` says what follows, and ``time_limits.py`` when a wait was too
long.
"""

from __future__ import annotations

import asyncio
import random
from functools import partial

from ..engine.attempt import Attempt
from ..engine.build_request import build
from ..engine.client_errors import error_of
from ..engine.downstream import Downstream
from ..engine.exchange import Exchange
from ..engine.headers import RawHeaders
from ..engine.outcome import Incident, Outcome
from ..engine.steps import (
    Deliver,
    DeliverEarlier,
    Fail,
    LastStep,
    Move,
    PassOn,
    Retry,
    Step,
    outcome_of,
)
from ..engine.verdicts import Failure, LoopDetected, Verdict, is_doubt, rejected
from ..engine.watch import ClientLeft, Receive
from ..errors import shutting_down
from ..telemetry import accounts, observers
from ..telemetry.token_rates import Writing
from ..wire.prompt_size import BYTES_PER_OUTPUT_TOKEN
from . import live_rules
from .answer import Answer
from .books import Books
from .calls import Calls
from .rules import JITTER
from .services import Services
from .time_limits import TimeLimits


class Driver:
    """Runs one exchange. The edge makes one for each chat completion and awaits :meth:`run`."""

    def __init__(
        self,
        services: Services,
        exchange: Exchange,
        *,
        headers: RawHeaders,  # for LiteLLM
        our_key: bool,  # the headers' API key is ours, not the client's
        downstream: Downstream,
        receive: Receive,  # the client's further messages, by ASGI
        arrived: float,  # when the request was complete, on the event loop's clock
    ) -> None:
        settings = services.settings
        self._report_fault = report = partial(accounts.stage_failed, services)
        self._services = services
        self._exchange = exchange
        # Moved later by each wait in a queue; None: the overhead has been observed.
        self._arrived: float | None = arrived
        self._clock = asyncio.get_running_loop().time
        self._books = books = Books(services, exchange)
        self._answer = Answer(exchange, downstream, services.memory, settings.stream.metadata)
        leaves_silent = partial(live_rules.leaves_silent, services, exchange, books)
        self._limits = TimeLimits(receive, services, exchange, self._answer, leaves_silent)
        self._observer = observers.of(exchange, services.observers, report)
        self._calls = Calls(
            services,
            exchange,
            self._answer,
            self._limits,
            headers=headers,
            our_key=our_key,
            observer=self._observer,
        )
        self._running: Attempt | None = None  # the newest attempt, until it has an outcome
        self._doubted_attempt: Attempt | None = None  # whose reply may still be delivered
        self._books_closed = False
        self.outcome = "error"  # how the exchange ended, as one word for metrics

    async def run(self) -> None:
        """Run the exchange until the client has its last byte or has left."""
        self._services.drivers.add(self)
        self._limits.start()
        try:
            try:
                refusal = await self._open()
                step = refusal or await self._run_attempts()
            except asyncio.CancelledError:  # outside a call, as in a wait for the store
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
        """Read the session and choose the first tier; return the refusal if there is none."""
        exchange = self._exchange
        exchange.session_start = await self._books.open()
        start = await live_rules.start(self._services, exchange, self._books)
        if isinstance(start, Failure):
            return Fail(error_of(exchange, start))
        exchange.start = start
        if start.reason:
            first_tier = exchange.request.route.first
            accounts.note_escalated(self._services, exchange, first_tier, start.reason)
        return None

    # Each attempt

    async def _run_attempts(self) -> LastStep:
        """Make attempts; return the step that ends the exchange."""
        services, exchange = self._services, self._exchange
        step: Step | None = None
        while True:
            request = build(exchange, services.settings, services.tier_states.view())
            attempt = Attempt(exchange, request, services.stages, self._report_fault)
            self._running = self._answer.newest = attempt
            in_turn = partial(self._call_in_turn, attempt, _backoff(step))
            verdict = await self._calls.run(attempt, in_turn)
            self._calls.note_end(attempt, self._add_outcome(attempt, verdict))
            await self._books.settle_cloud()
            step = await live_rules.following(services, exchange, self._books, self._clock())
            exchange.steps.append(step)
            accounts.note_attempt(services, exchange)
            if not isinstance(step, (Retry, Move)):
                return step
            if is_doubt(verdict):
                self._doubted_attempt = attempt

    async def _call_in_turn(self, attempt: Attempt, backoff: float) -> Verdict | None:
        """Make the call once the tier has a free place. Raises :class:`QueueTimeout`."""
        services, exchange, tier = self._services, self._exchange, attempt.tier
        refusal = await self._books.reserve_tokens(tier, attempt.request.body)
        attempt.notes["Budget-Warning"] = self._books.warning
        if refusal is not None:
            return refusal
        await self._calls.close()  # the previous attempt's
        if backoff:
            await asyncio.sleep(backoff)
        queued_at = self._clock()
        async with services.queues.place(
            tier, exchange.request.session.hash, exchange.request.owner
        ):
            now = self._clock()
            attempt.waited = now - queued_at
            if self._arrived is not None:
                self._arrived += attempt.waited
            if failure := await live_rules.before_call(services, exchange, self._books, now):
                return failure
            if exchange.request.route.is_cloud(tier, services.settings):
                attempt.notes["Cloud"] = "true"
            if self._arrived is not None:  # the seconds before the first call, less the waits
                overhead = self._clock() - self._arrived - self._books.waited
                services.metrics.observe("overhead_seconds", overhead)
                self._arrived = None
            return await self._calls.make(attempt)

    def _add_outcome(
        self, attempt: Attempt, verdict: Verdict | None, *, left: bool = False
    ) -> Outcome:
        """Append the outcome of a finished attempt. ``left``: the client disconnected."""
        self._running, exchange = None, self._exchange
        spent = self._books.count(attempt, verdict)
        outcome = attempt.outcome(verdict, spent, self._clock(), left=left)
        exchange.outcomes.append(outcome)
        if attempt.first_byte is not None:
            tier = accounts.tier_label(exchange)
            self._services.metrics.observe("first_token_seconds", outcome.figures.silent, tier)
        if (
            outcome.called
            and isinstance(exchange.second_opinion_on, LoopDetected)
            and not any(one.kind == "loop_answer" for one in outcome.remarks.incidents)
        ):
            outcome.remarks.incidents.append(Incident("loop_answer", ("empty",)))
        return outcome

    def _note_client_left(self) -> None:
        self.outcome = "client_left"
        if (attempt := self._running) is not None and attempt.began is not None:
            self._add_outcome(attempt, None, left=True)
            self._calls.note_end(attempt, None)

    # The end

    async def _close_books(self, outcome: str, step: LastStep | None = None) -> None:
        """Count the exchange and settle its budgets, once, before the client's last byte."""
        if not self._books_closed:
            self._books_closed = True
            if len(self._exchange.recorded) < len(self._exchange.outcomes):
                accounts.note_attempt(self._services, self._exchange)  # no step has followed
            begun = self._answer.downstream.started
            accounts.count_end(self._services, self._exchange, outcome, step, begun=begun)
            await self._books.close(delivered=isinstance(step, (Deliver, DeliverEarlier)))

    async def _deliver(self, step: LastStep) -> None:
        """Send the client the last step's reply or error."""
        if isinstance(step, (PassOn, Fail)):
            await self._answer.send_error(step)
            return
        attempt = self._answer.newest
        if isinstance(step, DeliverEarlier):
            attempt = self._doubted_attempt
            if attempt is not None and (committed := self._exchange.committed) is not None:
                attempt.continue_stream(committed)
        assert attempt is not None
        await self._answer.deliver(attempt)

    async def _end(self) -> None:
        """Release everything that the exchange holds, however it ended."""
        self._services.drivers.discard(self)
        self._limits.stop()
        if self._running is not None:
            self._calls.note_end(self._running, None)
        await self._calls.close()
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
    """Return the seconds to wait before the attempt after ``step``."""
    return step.after * random.uniform(1.0, 1.0 + JITTER) if isinstance(step, Retry) else 0.0
