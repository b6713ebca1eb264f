"""One exchange, from its first attempt to its last byte: the only loop that makes attempts.

:meth:`Run.run` opens and closes the exchange; :meth:`Run._to_last_step` is the loop. Each round
builds an attempt, makes its upstream call (``calls.py``), appends the outcome, and asks for the
step that follows (``decisions.py``, by the rules of ``next_step.py``). A retry or a move starts the
next round. Any other step ends the loop, and ``answer.py`` writes to the client. Only this loop
appends to the exchange's outcomes and steps.
"""

from __future__ import annotations

import asyncio
import functools
import random

from ..errors import shutting_down
from ..escalation.breaker import TierCall
from ..loop_detection import ask_loop_model
from ..telemetry import accounts, observers
from ..telemetry.token_rates import Writing
from ..token_budget.books import Books
from ..wire.prompt_size import BYTES_PER_OUTPUT_TOKEN
from .answer import Answer
from .attempt import Attempt
from .build_request import build
from .calls import Calls
from .decisions import Decisions
from .downstream import Downstream
from .exchange import Exchange, SessionStart
from .failures import error_of
from .headers import RawHeaders
from .outcome import Outcome
from .services import Services
from .steps import Deliver, DeliverEarlier, Fail, LastStep, Move, PassOn, Retry, outcome_of
from .timers import Timers
from .tries import JITTER
from .verdicts import Cut, Rejected, UpstreamFailed, Verdict, is_doubt, reason_of
from .watch import ClientLeft, Watch


class Run:
    """Runs one exchange. The edge makes one for each chat completion and awaits :meth:`run`."""

    def __init__(
        self,
        services: Services,
        exchange: Exchange,
        *,
        headers: RawHeaders,  # to send to LiteLLM
        our_key: bool,  # the API key in the headers is ours, not the client's
        downstream: Downstream,
        watch: Watch,
        arrived: float,  # when the whole request was there, on the event loop's clock
    ) -> None:
        self._services = services
        self._exchange = exchange
        self._headers = headers
        self._watch = watch
        self._clock = asyncio.get_running_loop().time
        self._report_fault = functools.partial(accounts.stage_failed, services)
        self._books = Books(services, exchange)
        self._decisions = Decisions(services, exchange, self._books)
        metadata = services.settings.stream.metadata
        self._answer = Answer(exchange, downstream, services.memory, metadata)
        self._observer = observers.of(exchange, services.observers, self._report_fault)
        self._calls = Calls(
            services=services,
            exchange=exchange,
            headers=headers,
            our_key=our_key,
            arrived=arrived,
            answer=self._answer,
            books=self._books,
            decisions=self._decisions,
            watch=watch,
            timers=Timers(services, exchange, self._answer, self._decisions, self._clock),
            observer=self._observer,
            clock=self._clock,
        )
        self._books_closed = False
        self._attempt: Attempt | None = None  # the newest attempt
        self._doubted_attempt: Attempt | None = None  # its reply may still be delivered
        self.outcome = "error"  # how the exchange ended, as one word for metrics

    async def run(self) -> None:
        """Run the exchange until the client has its last byte or has left."""
        self._watch.start(self._calls.timers.tick)
        self._services.exchanges.add(self)
        try:
            try:
                step = await self._to_last_step()
            except asyncio.CancelledError:  # outside a call, such as while the store is awaited
                step = Fail(error_of(self._exchange, self._watch.interruption()))
            self._watch.stop()
            delivers = isinstance(step, (Deliver, DeliverEarlier))
            await self._close_books(outcome_of(step), delivered=delivers)
            await self._carry_out(step)
            self.outcome = outcome_of(step)
            if delivers:
                ask_loop_model.ask(self._services, self._exchange, self._headers)
        except ClientLeft:
            self._note_client_left()
        except asyncio.CancelledError:
            if not self._watch.client_left:
                raise
            self._note_client_left()
        finally:
            self._services.exchanges.discard(self)
            self._watch.stop()
            self._calls.timers.close()
            self._calls.end_for_tier()
            await self._calls.close()
            await self._close_books(self.outcome, delivered=False)
            if self._observer is not None:
                self._observer.ended(self.outcome)

    async def _to_last_step(self) -> LastStep:
        """Choose a tier and make attempts; return the step that ends the exchange."""
        exchange = self._exchange
        if refusal := await self._start():
            return Fail(error_of(exchange, refusal))
        backoff = 0.0
        while True:
            verdict = await self._make_attempt(backoff)
            self._note_outcome(verdict)
            await self._books.settle_cloud()
            step = await self._decisions.next_step(exchange, self._clock())
            exchange.steps.append(step)
            accounts.note_step(self._services, exchange, step)
            if not isinstance(step, (Retry, Move)):
                return step
            if is_doubt(verdict):
                self._doubted_attempt = self._attempt
            backoff = (
                step.after * random.uniform(1.0, 1.0 + JITTER) if isinstance(step, Retry) else 0
            )

    async def _start(self) -> Rejected | None:
        """Read the session and choose the first tier; return the refusal if no tier may be used."""
        exchange = self._exchange
        session = await self._books.open()
        if session is not None:
            stored = bool(session.turns)
            exchange.began = SessionStart(session.first_seen, stored, session.replies)
        start = await self._decisions.start()
        if isinstance(start, Rejected):
            return start
        exchange.start = start
        if start.reason:
            first_tier = exchange.request.route.first
            accounts.note_escalated(self._services, exchange, first_tier, start.reason)
        return None

    async def _make_attempt(self, backoff: float) -> Verdict | None:
        """Build an attempt, make its call, and return the verdict on its reply."""
        exchange, settings = self._exchange, self._services.settings
        attempt = self._attempt = self._answer.running = Attempt(
            exchange,
            build(exchange, settings, self._services.tier_states.view()),
            self._services.stages,
            self._report_fault,
        )
        verdict = attempt.on_request()
        if verdict is not None:
            return verdict
        verdict = await self._calls.make(attempt, backoff)
        if verdict is not None and not isinstance(verdict, Cut):
            return verdict
        if attempt.is_slow():
            return await asyncio.to_thread(attempt.settle)
        return attempt.settle()

    def _note_outcome(self, verdict: Verdict | None) -> None:
        """Append the outcome of the attempt that ended; update the breaker, metrics and events."""
        status = verdict.status if isinstance(verdict, UpstreamFailed) else 200
        outcome = self._add_outcome(verdict, reason_of(verdict), status)
        if (call := self._calls.tier_call) is not None:
            self._learn_of_tier(call, outcome)
            self._calls.end_for_tier()
        accounts.settle_incidents(self._services, self._exchange, outcome.remarks.incidents)

    def _learn_of_tier(self, call: TierCall, outcome: Outcome) -> None:
        """Tell the tier's breaker how a call ended; after a failure, watch the tier's recovery."""
        services, exchange, verdict = self._services, self._exchange, outcome.verdict
        body = self._attempt.request.body if self._attempt is not None else {}
        output = body.get("max_tokens") or body.get("max_completion_tokens") or 0
        event = services.tier_states.note(call, outcome, exchange.request, output)
        if isinstance(verdict, UpstreamFailed):
            services.recovery.watch(call.tier)
        elif exchange.strict:
            services.tier_states.note_strict(call.tier)
        elif exchange.hint_in_tool_result:
            # Upstream took our words in a tool's result: it had refused them in a user message.
            accounts.note_hint_refused(services, exchange)
        if event is not None:
            accounts.record_events(services, exchange, [event])

    def _add_outcome(
        self, verdict: Verdict | None, reason: str | None, status: int | None
    ) -> Outcome:
        calls, attempt, now = self._calls, self._attempt, self._clock()
        assert attempt is not None
        began, calls.began = calls.began, None  # None: the attempt ended before its call
        called = began is not None
        unreachable = isinstance(verdict, UpstreamFailed) and verdict.unreachable
        spent = self._books.count(status, attempt.reply) if called and not unreachable else None
        outcome = Outcome(
            attempt.request.tier,
            verdict,
            reason,
            called=called,
            status=status,
            seconds=now - began if began is not None else 0.0,
            silent=(calls.first_byte or now) - began if began is not None else 0.0,
            waited=calls.waited,
            placed=calls.placed,
            tokens_in=spent.prompt if spent is not None else 0,
            tokens_out=spent.output if spent is not None else 0,
            committed=attempt.committed,
            remarks=attempt.remarks(),
            reply=attempt.reply,
        )
        self._exchange.outcomes.append(outcome)
        if called:
            accounts.count_attempt(self._services, self._exchange, outcome, spent)
            if self._observer is not None:
                self._observer.call_ended(attempt, outcome)
        return outcome

    async def _close_books(self, outcome: str, *, delivered: bool) -> None:
        """Count the exchange and settle its budgets, before the client's last byte; only once."""
        if not self._books_closed:
            self._books_closed = True
            counts = accounts.count_end(self._services, self._exchange, outcome)
            await self._books.close(counts, delivered=delivered)

    async def _carry_out(self, step: LastStep) -> None:
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

    def _note_client_left(self) -> None:
        self.outcome = "client_left"
        if self._calls.began is not None:
            self._add_outcome(None, "client_left", None)

    # For the process

    def writing(self) -> Writing | None:
        """Return the running call's tier label, estimated output tokens so far, and start time.

        None: no upstream call runs.
        """
        if self._calls.began is None or self._attempt is None:
            return None
        tokens = self._attempt.reply.written() // BYTES_PER_OUTPUT_TOKEN
        return accounts.tier_label(self._exchange), tokens, self._calls.began

    def end(self) -> None:
        """End the exchange because the process stops; the client gets an error that says so."""
        self._watch.end(Rejected(shutting_down()))
