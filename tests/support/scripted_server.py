"""An upstream over real sockets that answers exactly as a test says, down to the single byte.

    async with ScriptedServer() as upstream:
        upstream.will(Reply.sse(b"data: …\\n\\n", Wait(event), RESET))
        ...
        call = await upstream.next_call()      # what arrived: headers, body, when it was left

It plays LiteLLM in front of the tiers. It answers GET /v1/models and /health by itself; any other
call gets the next reply of the script, or ``upstream.otherwise`` after its end. Nothing is patched,
so that the proxy meets what a real server could do.
"""

from __future__ import annotations

import asyncio
import json
import socket
import struct
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
from typing import Any, Literal, Self, cast

ARRIVAL_SECONDS = 10  # for anything that a test waits for; longer is a failure


@dataclass(frozen=True)
class Wait:
    """Send nothing until the event is set."""

    event: asyncio.Event


@dataclass(frozen=True)
class Delay:
    seconds: float


class Mark:
    """RESET, CLOSE and SILENCE: things that a server can do besides sending."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __repr__(self) -> str:
        return self.name


RESET = Mark("RESET")  # a TCP reset, as from a process that was killed
CLOSE = Mark("CLOSE")  # the end of the connection, whatever the headers promised
SILENCE = Mark("SILENCE")  # keep the connection, send nothing more

Piece = bytes | Wait | Delay | Mark | Callable[[], Awaitable[None]]
Framing = Literal["chunked", "length", "close", "raw"]


@dataclass(frozen=True)
class Reply:
    """One scripted answer."""

    status: int = 200
    headers: tuple[tuple[str, str], ...] = ()
    pieces: tuple[Piece, ...] = ()  # done one after the other
    framing: Framing = "length"  # how the client learns the end; `raw` sends no head either
    early: bool = False  # begin after the request's head, without waiting for its body

    @classmethod
    def sse(cls, *pieces: Piece, headers: tuple[tuple[str, str], ...] = ()) -> Reply:
        head = (("content-type", "text/event-stream; charset=utf-8"), *headers)
        return cls(200, head, pieces, "chunked")

    @classmethod
    def json(cls, body: Any, status: int = 200, **headers: str) -> Reply:
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        head = [("content-type", "application/json")]
        head += [(name.replace("_", "-"), value) for name, value in headers.items()]
        return cls(status, tuple(head), (data,))

    @classmethod
    def raw(cls, *pieces: Piece) -> Reply:
        return cls(pieces=pieces, framing="raw")

    def with_headers(self, *headers: tuple[str, str]) -> Reply:
        return replace(self, headers=(*self.headers, *headers))


@dataclass(frozen=True)
class WhenWhole:
    """A reply that is chosen by the request's body, once all of it has arrived."""

    choose: Callable[[Call], Reply]


@dataclass
class Call:
    """One request as it arrived."""

    method: str
    target: str
    headers: list[tuple[str, str]]  # names in lower case
    body: bytearray = field(default_factory=bytearray)  # as far as it has come
    whole: asyncio.Event = field(default_factory=asyncio.Event)  # all of the body has come
    gone: asyncio.Event = field(default_factory=asyncio.Event)  # its connection is lost
    answered: asyncio.Event = field(default_factory=asyncio.Event)  # all pieces are sent

    def json(self) -> Any:
        return json.loads(bytes(self.body))

    def header(self, name: str) -> str | None:
        found = [value for key, value in self.headers if key == name.lower()]
        return ", ".join(found) if found else None

    async def left_within(self, seconds: float) -> bool:
        try:
            async with asyncio.timeout(seconds):
                await self.gone.wait()
        except TimeoutError:
            return False
        return True


class ScriptedServer:
    """The server, for an ``async with`` block; it keeps its port over :meth:`stop`.

    ``keeps``: whether calls stay in ``calls``, which a long run has no use for.
    """

    def __init__(
        self, models: tuple[str, ...] = ("fast", "standard"), *, keeps: bool = True
    ) -> None:
        self.models = models
        self._keeps = keeps
        self.script: deque[Scripted] = deque()
        self.otherwise: Scripted | None = None  # the reply after the script's end
        self.routes: dict[tuple[str, str], Reply] = {}  # fixed replies by method and path
        self.calls: list[Call] = []  # without those that `own_reply` answered
        self.connections: set[_Connection] = set()
        self._arrived: asyncio.Queue[Call] = asyncio.Queue()
        self._server: asyncio.Server | None = None
        self.port = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    async def __aenter__(self) -> Self:
        await self.listen()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    async def listen(self) -> None:
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(
            lambda: _Connection(self), "127.0.0.1", self.port, backlog=1024
        )
        self.port = self._server.sockets[0].getsockname()[1]

    async def stop(self) -> None:
        """Stop listening (later connections are refused) and drop all connections."""
        if self._server is not None:
            self._server.close()
            self._server = None
        for connection in list(self.connections):
            connection.reset()

    def will(self, *replies: Scripted) -> None:
        """Answer the next calls with these, in order."""
        self.script.extend(replies)

    def always(self, reply: Scripted) -> None:
        self.otherwise = reply

    async def next_call(self) -> Call:
        """Return the earliest call that no ``next_call`` has returned, or wait for one."""
        async with asyncio.timeout(ARRIVAL_SECONDS):
            return await self._arrived.get()

    def arrived(self, call: Call) -> None:
        if self._keeps:
            self.calls.append(call)
            self._arrived.put_nowait(call)

    def own_reply(self, call: Call) -> Reply | None:
        """Return the reply in ``routes``, or one that LiteLLM gives by itself; None: neither."""
        path = call.target.partition("?")[0]
        reply = self.routes.get((call.method, path))
        if reply is not None:
            return reply
        if (call.method, path) == ("GET", "/v1/models"):
            data = [{"id": name, "object": "model", "owned_by": "openai"} for name in self.models]
            return Reply.json({"object": "list", "data": data})
        if call.method == "GET" and path.startswith("/health"):
            return Reply.json(b'"I\'m alive!"')
        return None

    def scripted_reply(self, call: Call) -> Reply | WhenWhole:
        chosen = self.script.popleft() if self.script else self.otherwise
        if chosen is None:
            message = f"the script has no reply to {call.method} {call.target}"
            return Reply.json({"error": {"message": message}}, status=599)
        return chosen(call) if callable(chosen) else chosen


Scripted = Reply | WhenWhole | Callable[[Call], Reply]


class _Connection(asyncio.Protocol):
    def __init__(self, server: ScriptedServer) -> None:
        self.server = server
        self.buffer = bytearray()
        self.call: Call | None = None
        self.body = _BodyReader(None, False)
        self.playing: asyncio.Task[None] | None = None
        self.writable = asyncio.Event()
        self.writable.set()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)  # uvloop's is none by its class
        self.server.connections.add(self)

    def connection_lost(self, exc: Exception | None) -> None:
        self.server.connections.discard(self)
        if self.call is not None:
            self.call.gone.set()
        if self.playing is not None:
            self.playing.cancel()
        self.writable.set()

    def pause_writing(self) -> None:
        self.writable.clear()

    def resume_writing(self) -> None:
        self.writable.set()

    def reset(self) -> None:
        """End the connection with a TCP reset."""
        raw = self.transport.get_extra_info("socket")
        if raw is not None:
            raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.transport.abort()

    def data_received(self, data: bytes) -> None:
        self.buffer += data
        if self.call is None and not self.read_head():
            return
        self.read_body()

    def read_head(self) -> bool:
        head, blank, rest = bytes(self.buffer).partition(b"\r\n\r\n")
        if not blank:
            return False
        first, *lines = head.decode("latin-1").split("\r\n")
        method, target, _ = first.split(" ", 2)
        headers = []
        for line in lines:
            name, _, value = line.partition(":")
            headers.append((name.lower(), value.strip()))
        call = self.call = Call(method, target, headers)
        self.buffer = bytearray(rest)
        length = call.header("content-length")
        chunked = (call.header("transfer-encoding") or "").lower() == "chunked"
        self.body = _BodyReader(int(length) if length else None, chunked)
        own = self.server.own_reply(call)
        if own is None:
            self.server.arrived(call)
        reply = own or self.server.scripted_reply(call)
        self.playing = asyncio.get_running_loop().create_task(self.play(call, reply))
        return True

    def read_body(self) -> None:
        call = self.call
        if call is None or call.whole.is_set():
            return
        call.body += self.body.take(self.buffer)
        if self.body.complete:
            call.whole.set()

    async def play(self, call: Call, reply: Reply | WhenWhole) -> None:
        if isinstance(reply, WhenWhole):
            await call.whole.wait()
            reply = reply.choose(call)
        if not reply.early:
            await call.whole.wait()
        self.send_head(reply)
        for piece in reply.pieces:
            if isinstance(piece, bytes):
                self.send(piece, reply.framing)
                await self.writable.wait()
            elif isinstance(piece, Wait):
                await piece.event.wait()
            elif isinstance(piece, Delay):
                await asyncio.sleep(piece.seconds)
            elif piece is RESET:
                self.reset()
                return
            elif piece is CLOSE:
                self.transport.close()
                return
            elif piece is SILENCE:
                await asyncio.Event().wait()
            elif callable(piece):
                await piece()
        self.end(call, reply)

    def send_head(self, reply: Reply) -> None:
        if reply.framing == "raw":
            return
        headers = list(reply.headers)
        if reply.framing == "length":
            size = sum(len(piece) for piece in reply.pieces if isinstance(piece, bytes))
            headers.append(("content-length", str(size)))
        elif reply.framing == "chunked":
            headers.append(("transfer-encoding", "chunked"))
        else:
            headers.append(("connection", "close"))
        lines = "".join(f"{name}: {value}\r\n" for name, value in headers)
        self.transport.write(f"HTTP/1.1 {reply.status} Scripted\r\n{lines}\r\n".encode("latin-1"))

    def send(self, data: bytes, framing: Framing) -> None:
        if framing == "chunked":
            data = b"%x\r\n%s\r\n" % (len(data), data)
        self.transport.write(data)

    def end(self, call: Call, reply: Reply) -> None:
        call.answered.set()
        if reply.framing == "chunked":
            self.transport.write(b"0\r\n\r\n")
        if reply.framing in ("close", "raw"):
            self.transport.close()
            return
        self.call = self.playing = None
        if self.buffer:
            self.data_received(b"")


class _BodyReader:
    """Takes a request's body off the front of a buffer, by length or by chunks."""

    def __init__(self, length: int | None, chunked: bool) -> None:
        self.remaining = length or 0
        self.chunked = chunked
        self.complete = not chunked and not self.remaining

    def take(self, buffer: bytearray) -> bytes:
        if not self.chunked:
            data = bytes(buffer[: self.remaining])
            del buffer[: len(data)]
            self.remaining -= len(data)
            self.complete = not self.remaining
            return data
        taken = b""
        while not self.complete:
            line, found, _ = bytes(buffer).partition(b"\r\n")
            size = int(line, 16) if found else 0
            if not found or len(buffer) < len(line) + 2 + size + 2:
                break
            start = len(line) + 2
            taken += bytes(buffer[start : start + size])
            del buffer[: start + size + 2]
            self.complete = not size
        return taken
