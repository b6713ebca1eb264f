"""The only attempt loop: it makes the calls, ``core/next_step.py`` decides what follows."""

from __future__ import annotations

import asyncio
import functools
import random

from ..errors import shutting_down
from ..escalation import ladder, moves
from ..escalation.breaker import TierCall
from ..escalation.cloud import CHAT_PATH as DIRECT_PATH
from ..escalation.tier_queue import QueueTimeout
from ..loop_detection import ask_judge
from ..telemetry import accounts, observers
from ..telemetry.token_rates import Writing
from ..token_budget.books import Books
from ..wire.prompt_size import BYTES_PER_OUTPUT_TOKEN
from . import response_headers, upstream_answers
from .answer import Answer
from .attempt import Attempt
from .build_request import Before, build
from .downstream import Downstream
from .exchange import AttemptRecord, Committed, Exchange
from .failures import error_of, reason_of
from .headers import RawHeaders
from .next_step import JITTER, time_to_ask
from .services import Services
from .steps import Deliver, Fail, Move, PassOn, Retry, outcome_of
from .timers import Timers
from .upstream import CHAT_PATH, Response, Upstream, UpstreamError
from .verdicts import (
    Cut,
    InvalidToolCall,
    LeftOpen,
    LoopDetected,
    OutputTruncated,
    Rejected,
    UpstreamFailed,
    Verdict,
    is_doubt,
)
from .watch import ClientLeft, Watch

_MAX_ERROR_BODY = 1024 * 1024


class Run:
    """One exchange on its way. ``headers``: those for LiteLLM. ``our_key``: we put the key in.

    ``arrived``: when the request was whole.
    """

    def __init__(
        self,
        services: Services,
        exchange: Exchange,
        *,
        headers: RawHeaders,
        our_key: bool,
        downstream: Downstream,
        watch: Watch,
        arrived: float,
    ) -> None:
        self._services = services
        self._exchange = exchange
        self._headers = headers
        self._our_key = our_key
        metadata = services.settings.stream.metadata
        self._books = Books(services, exchange)
        self._answer = Answer(exchange, downstream, services.memory, metadata=metadata)
        self._watch = watch
        report = functools.partial(accounts.stage_failed, services)
        self._witness = observers.of(exchange, services.witnesses, report)
        self._clock = asyncio.get_running_loop().time
        self._timers = Timers(services, exchange, self._answer, watch, self._clock)
        self._attempt: Attempt | None = None
        self._doubted: moves.Doubted | None = None
        self._response: Response | None = None
        self._whole = False  # the response's last event has come
        self._before: Before | None = None
        self._called_at: float | None = None  # when the running attempt's upstream call began
        self._first_byte: float | None = None  # when its reply did
        self._ours: float | None = arrived  # the same, later by the wait in a queue; None: counted
        self._call_of_tier: TierCall | None = None  # the same, for the tier's breaker
        self._wait = 0.0  # seconds before the next upstream call
        self.outcome = "error"

    async def run(self) -> None:
        """From the first attempt to the last byte."""
        self._timers.start()
        self._services.exchanges.add(self)
        try:
            try:
                step = await self._steps()
            except asyncio.CancelledError:  # not within a call: while it waits for the store, say
                step = Fail(error_of(self._exchange, self._watch.interruption()))
            self._watch.stop()
            counts = accounts.by_hour(self._services, self._exchange, outcome_of(step))
            await self._books.close(delivered=isinstance(step, Deliver), counts=counts)
            await self._answer.finish(step, self._attempt)
            self.outcome = outcome_of(step)
            if isinstance(step, Deliver):
                ask_judge.ask(self._services, self._exchange, self._headers)
        except ClientLeft:
            self._note_client_left()
        except asyncio.CancelledError:
            if not self._watch.client_left:
                raise
            self._note_client_left()
        finally:
            self._services.exchanges.discard(self)
            self._timers.close()
            self._end_call_of_tier()
            await self._close_upstream()
            counts = accounts.by_hour(self._services, self._exchange, self.outcome)
            await self._books.close(delivered=False, counts=counts)
            if self._witness is not None:
                self._witness.ended(self.outcome)

    def writing(self) -> Writing | None:
        """The upstream call that runs, if one does."""
        if self._called_at is None or self._attempt is None:
            return None
        tokens = self._attempt.reply.written() // BYTES_PER_OUTPUT_TOKEN
        return accounts.tier_label(self._exchange), tokens, self._called_at

    def end(self) -> None:
        """The process ends: the client is told, in the stream if one has begun."""
        error = shutting_down()
        verdict = Rejected(error.status, error.type, error.message, retry_after=error.retry_after)
        self._watch.end(verdict)

    def _note_client_left(self) -> None:
        self.outcome = "client_left"
        self._record(self.outcome, None)

    async def _steps(self) -> Deliver | PassOn | Fail:
        """Be let in, choose a tier, and go on until there is a last step."""
        self._exchange.tier = self._exchange.route.first  # as long as nothing else is known
        await self._books.open()
        if refusal := await moves.start(self._services, self._exchange, self._books):
            return Fail(error_of(self._exchange, refusal))
        return await self._attempts()

    async def _attempts(self) -> Deliver | PassOn | Fail:
        exchange = self._exchange
        services = self._services
        while True:
            verdict = await self._attempt_on(exchange.tier)
            status = verdict.status if isinstance(verdict, UpstreamFailed) else 200
            self._record(reason_of(verdict), status, verdict)
            if self._call_of_tier is not None:
                moves.note_tier(services, exchange, self._call_of_tier, verdict)
                self._end_call_of_tier()
            self._note_committed()
            accounts.settle_incidents(services, exchange)
            await self._books.leave()
            now = self._clock()
            step = await moves.following(services, exchange, self._books, verdict, now)
            if isinstance(step, Fail) and not isinstance(verdict, Rejected):
                accounts.exhausted(services, exchange, step.error)
            if isinstance(step, Deliver) and step.doubted and self._doubted is not None:
                self._attempt = moves.go_back(exchange, self._doubted)
                self._answer.public = self._doubted.public
            if not isinstance(step, (Retry, Move)):
                return step
            self._prepare(step, verdict)

    def _end_call_of_tier(self) -> None:
        call, self._call_of_tier = self._call_of_tier, None
        if call is not None:
            self._services.tier_states.end(call)

    def _note_committed(self) -> None:
        """What the attempt has let out is with the client for good."""
        attempt = self._attempt
        if attempt is None or attempt.committed is None:
            return
        before = self._exchange.committed or Committed(identity=attempt.committed.identity)
        before.text += attempt.committed.text
        before.other = before.other or attempt.committed.other
        self._exchange.committed = before

    def _prepare(self, step: Retry | Move, verdict: Verdict | None) -> None:
        """Make the exchange ready for its next attempt."""
        exchange = self._exchange
        attempt = self._attempt
        assert attempt is not None
        if isinstance(verdict, (LoopDetected, InvalidToolCall)) and verdict.doubt:
            self._doubted = moves.doubted(exchange, attempt, self._answer.public)
        exchange.reply_notes.clear()
        exchange.text_retried = exchange.text_is_out
        # What one tier was told is none of the next one's business.
        exchange.hint = step.hint or ("" if isinstance(step, Move) else exchange.hint)
        if not isinstance(verdict, (OutputTruncated, UpstreamFailed, Rejected)):
            exchange.model_failure = verdict
            exchange.failed_on = exchange.tier
        if isinstance(step, Move) or not isinstance(verdict, UpstreamFailed):
            # A server's failure is nothing to tell the model: what it was told before stays.
            self._before = Before(attempt.reply, verdict, step)
        if isinstance(step, Move):
            moves.move(self._services, exchange, step.tier, step.reason)
            return
        exchange.retries += 1
        exchange.retried[step.reason] = step.number
        accounts.count_retry(self._services, exchange, step.reason)
        exchange.in_result |= step.in_result
        self._wait = step.after * random.uniform(1.0, 1.0 + JITTER)

    async def _attempt_on(self, tier: str) -> Verdict | None:
        exchange = self._exchange
        services = self._services
        attempt = self._attempt = Attempt(
            exchange,
            build(exchange, services.settings, self._before),
            services.stages,
            functools.partial(accounts.stage_failed, services),
            hold_whole=exchange.hold_whole or not exchange.request.stream,
            hold_seconds=services.settings.stream.hold_seconds if exchange.request.tools else 0.0,
        )
        verdict = attempt.on_request()
        if verdict is not None:
            return verdict
        try:
            try:
                seconds = time_to_ask(exchange, services.settings, self._clock())
                if seconds is None:
                    verdict = await self._reserve_and_call(tier, attempt)
                else:
                    verdict = await self._ask_for(seconds, tier, attempt)
                await self._watch.settle()
            except asyncio.CancelledError:
                verdict = self._watch.interruption()
                await self._close_upstream()  # the client may be long in taking what it is told
                if isinstance(verdict, LeftOpen):
                    verdict = None
        except QueueTimeout as error:
            exchange.queued.append((tier, error.seconds, False))
            return UpstreamFailed(error.reason, f"tier {tier}: {error}", retry_after=error.seconds)
        finally:
            self._timers.end()
            self._wait = 0.0
        if verdict is None or isinstance(verdict, Cut):
            return attempt.settle()
        return verdict

    async def _ask_for(self, seconds: float, tier: str, attempt: Attempt) -> Verdict | None:
        """The call, given up after that time."""
        try:
            async with asyncio.timeout(seconds):
                return await self._reserve_and_call(tier, attempt)
        except TimeoutError:
            await self._close_upstream()
            return UpstreamFailed("timeout", "no second opinion in time", blameless=True)

    async def _reserve_and_call(self, tier: str, attempt: Attempt) -> Verdict | None:
        verdict = await self._books.begin(tier, attempt.request.body)
        return verdict if verdict is not None else await self._call_in_turn(tier, attempt)

    async def _call_in_turn(self, tier: str, attempt: Attempt) -> Verdict | None:
        """The call, once the tier has a place free. Raises :class:`QueueTimeout`."""
        await self._close_upstream()  # that of the attempt before
        if self._wait:
            await asyncio.sleep(self._wait)
        queue = self._services.queues[tier]
        session = self._exchange.session.hash
        asked = self._clock()
        ticket = await queue.enter(session) if queue is not None else None
        waited = self._clock() - asked
        accounts.note_wait(self._exchange, tier, waited)
        if self._ours is not None:
            self._ours += waited
        try:
            now = self._clock()
            begun = await moves.begin(self._services, self._exchange, self._books, now)
            if isinstance(begun, UpstreamFailed):
                return begun
            self._call_of_tier = begun
            return await self._call_somewhere(attempt)
        finally:
            if queue is not None and ticket is not None:
                queue.leave(ticket)

    async def _call_somewhere(self, attempt: Attempt) -> Verdict | None:
        """Through LiteLLM; or directly, for a cloud tier that it doesn't list."""
        services = self._services
        exchange = self._exchange
        cloud = services.cloud
        if cloud is not None and exchange.tier in exchange.route.direct:
            return await self._call(attempt, cloud.upstream, DIRECT_PATH, cloud.headers())
        return await self._call(attempt, services.upstream, CHAT_PATH, self._headers)

    async def _call(
        self, attempt: Attempt, upstream: Upstream, path: str, headers: RawHeaders
    ) -> Verdict | None:
        now = self._called_at = self._clock()
        self._first_byte = None
        self._timers.begin(attempt, now)
        self._whole = False
        if self._ours is not None:
            waited = self._books.waited  # for other requests' tokens
            metrics = self._services.metrics
            metrics.overhead.observe(self._clock() - self._ours - waited)
            self._ours = None
        verdict: Verdict | None
        try:
            # The cloud, asked directly, knows no such id.
            call_id = self._exchange.id if upstream is self._services.upstream else None
            if self._witness is not None:
                headers = self._witness.call_begins(attempt.request.tier, headers)
            self._response = await upstream.send(
                "POST", path, headers, attempt.take_content(), call_id=call_id
            )
            if self._witness is not None:
                self._witness.answered(self._response)
            verdict = await self._read(attempt, self._response)
        except UpstreamError as error:
            # A reply that has its finish_reason is as whole as one that is left open.
            verdict = None if attempt.timing[1] else _failed(error)
        self._whole = verdict is None
        if verdict is not None:
            await self._close_upstream()  # the model must stop now, not when the client is told
        return verdict

    async def _close_upstream(self) -> None:
        response, self._response = self._response, None
        if response is None:
            return
        try:
            if self._whole:
                await response.drain()
        finally:
            await response.aclose()

    async def _read(self, attempt: Attempt, response: Response) -> Verdict | None:
        if response.status >= 300:
            return upstream_answers.failure_of_status(
                response.status,
                response.headers,
                await response.read(_MAX_ERROR_BODY, cut=True),
                our_key=self._our_key or self._exchange.tier in self._exchange.route.direct,
                our_choice=bool(self._exchange.route.tiers),
                needs=ladder.needs(self._exchange.request),
                speaks_behind_result=attempt.speaks_behind_result,
            )
        self._answer.public = response_headers.public(response.headers)
        content_type = response.header(b"content-type").lower()
        if b"event-stream" in content_type:
            return await self._read_stream(attempt, response)
        return await self._take_json(attempt, await response.read())

    async def _read_stream(self, attempt: Attempt, response: Response) -> Verdict | None:
        first = True
        while not attempt.over:
            data = await response.next_bytes()
            now = self._clock()
            if first and data:
                first = False
                self._observe_first_byte(now)
            out = attempt.feed(data, now) if data else attempt.end(now)
            if out:
                await self._answer.send(out)
                now = self._answer.last_write  # a slow client is not a silent model
            self._timers.heard(attempt, now)
            del data, out  # what has gone by is not to be held until the next comes
        return attempt.verdict

    async def _take_json(self, attempt: Attempt, body: bytes) -> Verdict | None:
        self._observe_first_byte(self._clock())
        ours = attempt.speaks_behind_result
        completion = upstream_answers.completion_in(body, speaks_behind_result=ours)
        if isinstance(completion, UpstreamFailed):
            return completion
        attempt.take_completion(completion)
        return attempt.verdict

    # Accounts

    def _record(
        self, reason: str | None, status: int | None, verdict: Verdict | None = None
    ) -> None:
        """The running attempt's upstream call has ended, if one was made."""
        if self._called_at is None or self._attempt is None:
            return
        exchange = self._exchange
        now, reply = self._clock(), self._attempt.reply
        refused = isinstance(verdict, UpstreamFailed) and verdict.refused
        spent = None if refused else self._books.count(status, reply)
        began, self._called_at = self._called_at, None
        silent = (self._first_byte or now) - began
        times = (now - began, refused, is_doubt(verdict), silent)
        record = AttemptRecord(exchange.tier, reason, status, *times)
        accounts.count_attempt(self._services, exchange, record, reply, spent)
        if self._witness is not None:
            self._witness.call_ended(self._attempt, record, verdict, spent)

    def _observe_first_byte(self, now: float) -> None:
        metrics = self._services.metrics
        tier = accounts.tier_label(self._exchange)
        began = self._exchange.started if self._called_at is None else self._called_at
        metrics.first_token.observe(now - began, tier)
        self._first_byte = now


def _failed(error: UpstreamError) -> UpstreamFailed:
    return UpstreamFailed("server_error", error.message, refused=error.refused)
