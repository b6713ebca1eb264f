"""The only attempt loop: it makes the calls, ``core/next_step.py`` decides what follows."""

from __future__ import annotations

import asyncio
import functools
import random

import orjson

from .. import log
from ..core import upstream_answers
from ..core.attempt import Attempt
from ..core.build_request import Before, build
from ..core.deadlines import Deadlines
from ..core.exchange import AttemptRecord, Committed, Exchange
from ..core.failures import reason_of
from ..core.next_step import Deliver, Fail, Move, PassOn, Retry, Step, next_step
from ..core.sse import DONE_FRAME, comment_frame, data_frame
from ..core.verdicts import Cut, LeftOpen, OutputTruncated, Rejected, UpstreamFailed, Verdict
from ..errors import ProxyError, shutting_down
from . import accounts, climbing, response_headers
from .downstream import EVENT_STREAM, Downstream
from .services import Services
from .tier_queue import QueueTimeout
from .upstream import RawHeaders, Response, UpstreamError
from .watch import ClientLeft, Watch

CHAT_PATH = "/v1/chat/completions"
_JSON = [(b"content-type", b"application/json")]
_MAX_ERROR_BODY = 1024 * 1024
JITTER = 0.25  # of a back-off, at most, added to it
_KEEPALIVE = comment_frame("keep-alive")


class Run:
    """One exchange on its way. ``headers``: those for LiteLLM. ``our_key``: we put the key in."""

    def __init__(
        self,
        services: Services,
        exchange: Exchange,
        *,
        headers: RawHeaders,
        our_key: bool,
        downstream: Downstream,
        watch: Watch,
    ) -> None:
        self._services = services
        self._exchange = exchange
        self._headers = headers
        self._our_key = our_key
        self._downstream = downstream
        self._watch = watch
        self._clock = asyncio.get_running_loop().time
        self._attempt: Attempt | None = None
        self._deadlines: Deadlines | None = None
        self._public: RawHeaders = []
        self._said: dict[str, str] = {}
        self._late_writes: set[asyncio.Task[None]] = set()
        self._response: Response | None = None
        self._whole = False  # the response's last event has come
        self._before: Before | None = None
        self._called_at: float | None = None  # when the running attempt's upstream call began
        self._wait = 0.0  # seconds before the next upstream call
        self._timed: tuple[bool, bool, float | None] = (False, False, None)
        self.outcome = "error"

    async def run(self) -> None:
        """From the first attempt to the last byte."""
        self._watch.start(self._next_due, self._on_time)
        self._services.endings.add(self._end)
        try:
            step = await self._attempts()
            await self._carry_out(step)
        except ClientLeft:
            self._note_client_left()
        except asyncio.CancelledError:
            if not self._watch.client_left:
                raise
            self._note_client_left()
        finally:
            self._services.endings.discard(self._end)
            self._watch.stop()
            await self._close_upstream()

    def _end(self) -> None:
        """The process ends: the client is told, in the stream if one has begun."""
        error = shutting_down()
        verdict = Rejected(error.status, error.type, error.message, retry_after=error.retry_after)
        self._watch.end(verdict)

    def _note_client_left(self) -> None:
        self.outcome = "client_left"
        if self._called_at is not None:
            self._record("client_left", None, self._clock() - self._called_at)

    async def _attempts(self) -> Step:
        exchange = self._exchange
        services = self._services
        while True:
            verdict = await self._attempt_on(exchange.tier)
            if self._called_at is not None:
                status = verdict.status if isinstance(verdict, UpstreamFailed) else 200
                self._record(reason_of(verdict), status, self._clock() - self._called_at)
                await climbing.note_tier(services, exchange, verdict)
            self._note_committed()
            await accounts.settle_incidents(services, exchange)
            step = next_step(
                exchange, verdict, services.settings, services.tier_states.view(), self._clock()
            )
            if not isinstance(step, (Retry, Move)):
                return step
            await self._prepare(step, verdict)

    def _note_committed(self) -> None:
        """What the attempt has let out is with the client for good."""
        attempt = self._attempt
        if attempt is None or attempt.committed is None:
            return
        before = self._exchange.committed or Committed(identity=attempt.committed.identity)
        before.text += attempt.committed.text
        self._exchange.committed = before

    async def _prepare(self, step: Retry | Move, verdict: Verdict | None) -> None:
        """Make the exchange ready for its next attempt."""
        exchange = self._exchange
        attempt = self._attempt
        assert attempt is not None
        exchange.reply_notes.clear()
        exchange.text_retried = exchange.committed is not None and bool(exchange.committed.text)
        exchange.hint = step.hint or exchange.hint
        if isinstance(verdict, OutputTruncated):
            exchange.session_was_cut = True
        elif not isinstance(verdict, UpstreamFailed):
            exchange.model_failure = verdict
        self._before = Before(attempt.reply, verdict, step)
        if isinstance(step, Move):
            await climbing.move(self._services, exchange, step.tier, step.reason)
            return
        exchange.retries += 1
        exchange.retried[step.reason] = step.number
        accounts.count_retry(self._services, exchange, step.reason)
        self._wait = step.after * random.uniform(1.0, 1.0 + JITTER)

    async def _attempt_on(self, tier: str) -> Verdict | None:
        exchange = self._exchange
        services = self._services
        attempt = self._attempt = Attempt(
            exchange,
            build(exchange, services.settings, self._before),
            services.stages,
            functools.partial(_report_fault, services, exchange.id),
            hold_whole=exchange.hold_whole or not exchange.request.stream,
            hold_seconds=services.settings.stream.hold_seconds if exchange.request.tools else 0.0,
        )
        verdict = attempt.on_request()
        if verdict is not None:
            return verdict
        queue = services.queues[tier]
        try:
            try:
                await self._close_upstream()  # that of the attempt before
                if self._wait:
                    await asyncio.sleep(self._wait)
                ticket = await queue.enter(exchange.session.hash) if queue is not None else None
                probing = services.tier_states.begin(tier)
                try:
                    verdict = await self._call(attempt)
                finally:
                    if probing:
                        services.tier_states.end_probe(tier)
                    if queue is not None and ticket is not None:
                        queue.leave(ticket)
                await self._watch.settle()
            except asyncio.CancelledError:
                verdict = self._watch.interruption()
                await self._close_upstream()  # the client may be long in taking what it is told
                if isinstance(verdict, LeftOpen):
                    verdict = None
        except QueueTimeout as error:
            return UpstreamFailed("tier_busy", f"tier {tier}: {error}", retry_after=error.seconds)
        finally:
            self._deadlines = None
            self._wait = 0.0
        if verdict is None or isinstance(verdict, Cut):
            return attempt.settle()
        return verdict

    async def _call(self, attempt: Attempt) -> Verdict | None:
        now = self._called_at = self._clock()
        tier = self._services.settings.tiers.get(attempt.request.tier)
        self._deadlines = Deadlines(
            tier,
            tools=bool(self._exchange.request.tools),
            now=now,
            streams=bool(attempt.request.body.get("stream")),
        )
        self._watch.rearm()
        self._whole = False
        content = orjson.dumps(attempt.request.body)
        verdict: Verdict | None
        try:
            self._response = await self._services.upstream.send(
                "POST", CHAT_PATH, self._headers, content
            )
            verdict = await self._read(attempt, self._response)
        except UpstreamError as error:
            verdict = _failed(error)
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
        if response.status >= 400:
            return upstream_answers.failure_of_status(
                response.status,
                response.headers,
                await response.read(_MAX_ERROR_BODY),
                our_key=self._our_key,
                our_choice=bool(self._exchange.route.tiers),
            )
        self._public = response_headers.public(response.headers)
        content_type = response.header(b"content-type").lower()
        if b"event-stream" in content_type:
            return await self._read_stream(attempt, response)
        return await self._take_json(attempt, await response.read())

    async def _read_stream(self, attempt: Attempt, response: Response) -> Verdict | None:
        first = True
        while not attempt.over:
            data = await response.next_bytes()
            now = self._clock()
            if first:
                first = False
                self._observe_first_byte(now)
            out = attempt.feed(data, now) if data else attempt.end(now)
            if out:
                await self._send(out)
                now = self._clock()  # a slow client is not a silent model
            self._heard(now)
            timed = (attempt.begun, attempt.finished, attempt.next_release())
            if timed != self._timed:  # a nearer time than the one waited for may count now
                self._timed = timed
                self._watch.rearm()
        return attempt.verdict

    async def _take_json(self, attempt: Attempt, body: bytes) -> Verdict | None:
        self._observe_first_byte(self._clock())
        try:
            completion = orjson.loads(body)
        except orjson.JSONDecodeError:
            return UpstreamFailed("server_error", "upstream's answer is not JSON", status=200)
        if not isinstance(completion, dict) or not completion.get("choices"):
            what = upstream_answers.quoted_error(body)
            return UpstreamFailed(
                "server_error", f"upstream's answer is no chat completion: {what}", status=200
            )
        out = attempt.take_completion(completion, self._clock())
        if out:
            await self._send(out)
        return attempt.verdict

    # Answering the client

    async def _send(self, data: bytes) -> None:
        await self._late_writes_end()
        await self._write(data)

    async def _late_writes_end(self) -> None:
        """What a timer let out was there first, and must go out first."""
        while self._late_writes:
            await asyncio.wait(self._late_writes)

    async def _write(self, data: bytes) -> None:
        if not self._downstream.started:
            await self._start_stream()
        await self._downstream.write(data)

    async def _start_stream(self) -> None:
        self._exchange.headers_sent = True
        await self._downstream.start(200, [*EVENT_STREAM, *self._own_headers(), *self._public])

    def _own_headers(self, running: int = 1) -> RawHeaders:
        attempts = len(self._exchange.attempts) + running
        self._said = response_headers.values(self._exchange, attempts)
        return response_headers.encode(self._said)

    async def _carry_out(self, step: Step) -> None:
        self._watch.stop()
        await self._late_writes_end()
        match step:
            case Deliver():
                self.outcome = "ok"
                await self._deliver()
            case PassOn():
                self.outcome = "client_error"
                await self._pass_on(step)
            case Fail():
                self.outcome = step.error.type
                await self._fail(step.error)

    async def _deliver(self) -> None:
        attempt = self._attempt
        assert attempt is not None
        fields, note = self._closing_words()
        metadata = fields if self._services.settings.stream.metadata else None
        if not self._exchange.request.stream:
            body = orjson.dumps(attempt.completion(metadata))
            headers = [*_JSON, *self._own_headers(running=0), *self._public]
            await self._downstream.whole(200, headers, body)
            return
        if not self._downstream.started:
            # The attempt that is delivered is recorded by now, so it is not counted again.
            self._exchange.headers_sent = True
            headers = [*EVENT_STREAM, *self._own_headers(running=0), *self._public]
            await self._downstream.start(200, headers)
            note = b""
        await self._downstream.end(attempt.rest(note, metadata))

    async def _pass_on(self, step: PassOn) -> None:
        headers = [*self._own_headers(running=0), *response_headers.public(step.headers)]
        kept = (b"content-type", b"retry-after")
        headers += [(name, value) for name, value in step.headers if name in kept]
        headers.append((b"x-should-retry", b"false"))
        await self._downstream.whole(step.status, headers, step.body)

    async def _fail(self, error: ProxyError) -> None:
        if self._downstream.started:
            _, note = self._closing_words()
            await self._downstream.end(data_frame(error.encoded()) + note + DONE_FRAME)
            return
        headers = [*error.headers(), *self._own_headers(running=0)]
        await self._downstream.whole(error.status, headers, error.encoded())

    def _closing_words(self) -> tuple[dict[str, str | int], bytes]:
        """What our headers would say now, and a comment of it if those sent said otherwise."""
        said = response_headers.values(self._exchange, len(self._exchange.attempts))
        fields = response_headers.as_fields(said)
        if said == self._said:
            return fields, b""
        return fields, comment_frame(f"x-mlx-stack {orjson.dumps(fields).decode()}")

    # Time

    def _next_due(self) -> float | None:
        times = [self._deadlines.next()] if self._deadlines is not None else []
        keepalive = self._services.settings.stream.keepalive_seconds
        if self._exchange.request.stream and keepalive:
            times.append(self._downstream.last_write + keepalive)
        if self._deadlines is not None and self._attempt is not None:
            release = self._attempt.next_release()
            if release is not None:
                times.append(release)
        return min(times) if times else None

    def _heard(self, now: float) -> None:
        if self._deadlines is not None and self._attempt is not None:
            attempt = self._attempt
            self._deadlines.heard(now, begun=attempt.begun, finished=attempt.finished)

    def _on_time(self, now: float) -> Verdict | None:
        if self._downstream.writing or self._late_writes:
            # The client is slow; that is neither silence of the model nor of ours. But it can't
            # keep a tier's place for ever.
            self._heard(now)
            self._downstream.last_write = now
            return self._deadlines.check(now) if self._deadlines is not None else None
        out = b""
        if self._deadlines is not None and self._attempt is not None:  # a call is running
            if timeout := self._deadlines.check(now):
                return timeout
            out = self._attempt.tick(now)
            if self._attempt.verdict is not None:
                return self._attempt.verdict
        keepalive = self._services.settings.stream.keepalive_seconds
        due = self._downstream.last_write + keepalive
        if not out and self._exchange.request.stream and keepalive and now >= due:
            out = _KEEPALIVE
        if out:
            self._downstream.last_write = now
            write = asyncio.ensure_future(self._write(out))
            self._late_writes.add(write)
            write.add_done_callback(self._late_writes.discard)
        return None

    # Accounts

    def _record(self, reason: str | None, status: int | None, seconds: float) -> None:
        exchange = self._exchange
        record = AttemptRecord(exchange.tier, reason, status, seconds)
        exchange.attempts.append(record)
        self._called_at = None
        reply = self._attempt.reply if self._attempt is not None else None
        accounts.count_attempt(self._services, exchange, record, reply)

    def _observe_first_byte(self, now: float) -> None:
        metrics = self._services.metrics
        tier = accounts.tier_label(self._exchange)
        began = self._exchange.started if self._called_at is None else self._called_at
        metrics.observe(metrics.first_token, now - began, tier)


def _failed(error: UpstreamError) -> UpstreamFailed:
    reason = "timeout" if error.timed_out else "server_error"
    return UpstreamFailed(reason, error.message, refused=error.refused)  # type: ignore[arg-type]


def _report_fault(services: Services, request_id: str, stage: str, error: Exception) -> None:
    services.metrics.inc(services.metrics.stage_faults, stage)
    log.fault("stage_fault", error, request_id=request_id, stage=stage)
