"""Writes the response of one exchange to its client.

While an attempt runs, :meth:`Answer.send` forwards its bytes, and the first of them start the
response with our headers. At the end :meth:`Answer.deliver` or :meth:`Answer.send_error` writes the
rest. Keepalives are written by separate tasks, which every other write waits for.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

import orjson

from ..engine.attempt import Attempt
from ..engine.client_errors import refusal_passed_on
from ..engine.downstream import EVENT_STREAM, Downstream
from ..engine.exchange import Exchange
from ..engine.headers import RawHeaders
from ..engine.outcome import Remarks
from ..engine.steps import Fail, PassOn
from ..errors import ProxyError
from ..memory_pressure.probe import MemoryProbe
from ..wire.dialect import error_reply
from ..wire.sse import DONE_FRAME, comment_frame, data_frame
from . import response_headers

_JSON = [(b"content-type", b"application/json")]
_PASSED = (b"content-type", b"retry-after")
_KEEPALIVE = comment_frame("keep-alive")


@dataclass(slots=True, eq=False)
class Answer:
    """The response to one client."""

    exchange: Exchange
    downstream: Downstream
    memory: MemoryProbe  # provides the memory pressure for our headers
    metadata: bool  # whether the last chunk, or the object, repeats our headers
    newest: Attempt | None = None  # the newest attempt
    encoding: bool = False  # a thread encodes the reply's next bytes, so no keepalive may be made
    _sent_values: dict[str, str] = field(default_factory=dict)  # our headers' values, as sent
    _late_writes: list[asyncio.Task[None]] = field(default_factory=list)  # keepalives
    _unsent: bytes = b""  # bytes whose write was cancelled; they go out before any others

    @property
    def busy(self) -> bool:
        """Whether a write is waiting for the client to read."""
        return self.downstream.writing or bool(self._late_writes)

    @property
    def last_write(self) -> float:
        return self.downstream.last_write

    @last_write.setter
    def last_write(self, now: float) -> None:
        self.downstream.last_write = now

    async def send(self, data: bytes) -> None:
        """Send bytes of the reply; if cancelled, keep them for the next write."""
        self._unsent = data = self._unsent + data
        if self._late_writes:
            await self._wait_for_late_writes()
        await self._write(data)
        self._unsent = b""

    def send_sign_of_life(self, now: float) -> None:
        self.last_write = now
        encoder = self.exchange.encoder
        sign = _KEEPALIVE if encoder is None else encoder.keepalive()
        write = asyncio.ensure_future(self._write(sign))
        self._late_writes.append(write)
        write.add_done_callback(self._late_writes.remove)

    async def send_error(self, step: PassOn | Fail) -> None:
        """Send our error, or upstream's own answer."""
        await self._wait_for_late_writes()
        if isinstance(step, Fail):
            await self._fail(step.error)
        else:
            await self._pass_on(step)

    async def _wait_for_late_writes(self) -> None:
        """Wait until the keepalives have gone out, because their bytes come first."""
        while self._late_writes:
            await asyncio.wait(self._late_writes)

    async def _write(self, data: bytes) -> None:
        if self.downstream.started:
            await self.downstream.write(data)
            return
        attempt = self.newest
        remarks = attempt.remarks() if attempt is not None else Remarks()
        public = attempt.public if attempt is not None else []
        headers = [*EVENT_STREAM, *self._own_headers(remarks), *public]
        await self.downstream.begin(200, headers, data)

    def _own_headers(self, remarks: Remarks | None = None) -> RawHeaders:
        self._sent_values = response_headers.values(self.exchange, remarks, self.memory.pressure)
        return response_headers.encode(self._sent_values)

    async def deliver(self, attempt: Attempt) -> None:
        """Send the rest of an attempt's reply, and end the response."""
        await self._wait_for_late_writes()
        if not self.exchange.request.stream:
            headers = [*_JSON, *self._own_headers(), *attempt.public]
            metadata = response_headers.as_fields(self._sent_values) if self.metadata else None
            completion = orjson.dumps(attempt.completion(metadata))
            await self.downstream.whole(200, headers, completion)
            return
        fields, note = self._closing_values()
        metadata = fields if self.metadata else None
        if self.downstream.started:
            await self.downstream.end(self._unsent + attempt.rest(note, metadata))
            return
        headers = [*EVENT_STREAM, *self._own_headers(), *attempt.public]
        data = self._unsent + attempt.rest(b"", metadata)
        await self.downstream.begin(200, headers, data, more=False)

    async def _pass_on(self, step: PassOn) -> None:
        if self.downstream.started or self.exchange.encoder is not None:
            await self._fail(refusal_passed_on(self.exchange, step), step.headers)
            return
        headers = [*self._own_headers(), *response_headers.public(step.headers)]
        headers += [h for h in response_headers.relayed(step.headers) if h[0] in _PASSED]
        headers.append((b"x-should-retry", b"false"))
        await self.downstream.whole(step.status, headers, step.body)

    async def _fail(
        self, error: ProxyError, upstream_headers: tuple[tuple[bytes, bytes], ...] = ()
    ) -> None:
        request, encoder = self.exchange.request, self.exchange.encoder
        if self.downstream.started:
            _, note = self._closing_values()
            if encoder is not None:
                ending = note + encoder.error(error)
            else:
                ending = data_frame(error.encoded()) + note + DONE_FRAME
            await self.downstream.end(self._unsent + ending)
            return
        reply = error_reply(request.dialect, error, request.id)
        headers = [*reply.headers, *self._own_headers(), *response_headers.public(upstream_headers)]
        await self.downstream.whole(reply.status, headers, orjson.dumps(reply.body))

    def _closing_values(self) -> tuple[dict[str, str | int], bytes]:
        """Return our headers' current values, with an SSE comment if other values were sent."""
        values = response_headers.values(self.exchange, None, self.memory.pressure)
        fields = response_headers.as_fields(values)
        if values == self._sent_values:
            return fields, b""
        return fields, comment_frame(f"x-mlx-stack {orjson.dumps(fields).decode()}")
