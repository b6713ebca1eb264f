"""One connection to a Redis or Valkey server, shared by all that ask at the same time.

A command never waits for the answer to the one before: what is asked in one turn of the event loop
goes out in one write, and answers come in the order of the commands. (A pool of redis-py's
connections costs 2.5 times the CPU of this; `docs/scaling.md` has the figures.) redis-py reads the
URL, with all that can be said there of TLS.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Any, cast

from redis.asyncio import ConnectionPool
from redis.asyncio.connection import SSLConnection, UnixDomainSocketConnection

# For an answer that may be there already, where this process was too busy to read it.
GRACE_SECONDS = 0.05

Word = str | bytes | int


class ErrorReply(Exception):
    """The server's own word that it did not do what it was asked."""


class NoAnswer(Exception):
    """An answer took too long; whether the command ran is not known."""


class Line(asyncio.Protocol):
    """``seconds``: how long an answer may take. ``on_end``: called when there is no connection."""

    def __init__(self, seconds: float, on_end: Callable[[Line], None]) -> None:
        self._loop = asyncio.get_running_loop()
        self._seconds = seconds
        self._on_end = on_end
        self._replies = Replies()
        self._unsent: list[bytes] = []
        self._waiting: deque[tuple[asyncio.Future[Any], float]] = deque()  # with when they asked
        self._timer: asyncio.TimerHandle | None = None
        self._overdue: asyncio.Future[Any] | None = None  # seen so once
        self._transport: asyncio.Transport | None = None

    async def call(self, *words: Word) -> Any:
        """The answer to a command.

        Raises :class:`ErrorReply`, :class:`NoAnswer`, or ``ConnectionError`` where there is no
        connection, or it ended before the answer.
        """
        if self._transport is None:
            raise ConnectionError("the connection is closed")
        if not self._unsent:
            self._loop.call_soon(self._flush)
        self._unsent.append(packed(words))
        future = self._loop.create_future()
        self._waiting.append((future, self._loop.time()))
        if self._timer is None:
            self._timer = self._loop.call_later(self._seconds, self._look)
        answer = await future
        if isinstance(answer, ErrorReply):
            raise answer
        return answer

    def close(self) -> None:
        self._end(ConnectionError("the connection is closed"))

    # As the event loop calls them

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's is none by its type

    def data_received(self, data: bytes) -> None:
        for answer in self._replies.feed(data):
            future, _ = self._waiting.popleft()
            if not future.done():  # its request was cancelled
                future.set_result(answer)

    def connection_lost(self, exc: Exception | None) -> None:
        self._end(ConnectionError(str(exc) if exc else "the server closed the connection"))

    def _flush(self) -> None:
        unsent, self._unsent = self._unsent, []
        if self._transport is not None:
            self._transport.write(b"".join(unsent))

    def _look(self) -> None:
        """Whether the oldest question has waited too long."""
        self._timer = None
        if not self._waiting:
            return
        future, asked = self._waiting[0]
        wait = asked + self._seconds - self._loop.time()
        if wait <= 0 and self._overdue is future:
            self._end(NoAnswer())
            return
        if wait <= 0:
            self._overdue, wait = future, GRACE_SECONDS
        self._timer = self._loop.call_later(wait, self._look)

    def _end(self, error: Exception) -> None:
        transport, self._transport = self._transport, None
        if transport is None:
            return
        if self._timer is not None:
            self._timer.cancel()
        if transport.get_write_buffer_size():  # nobody takes it
            transport.abort()
        else:
            transport.close()
        waiting, self._waiting = self._waiting, deque()
        for future, _ in waiting:
            if not future.done():
                future.set_exception(type(error)(*error.args))
        self._on_end(self)


def told_by(url: str) -> Any:
    """What a URL says, as a connection of redis-py's that is never made. Raises ``ValueError``."""
    pool: Any = ConnectionPool.from_url(url)
    return pool.make_connection()


async def connect(told: Any, seconds: float, on_end: Callable[[Line], None]) -> Line:
    """A line to a server that has answered. ``told``: see :func:`told_by`.

    Raises what :meth:`Line.call` does, and ``OSError``.
    """
    loop = asyncio.get_running_loop()

    def make() -> Line:
        return Line(seconds, on_end)

    if isinstance(told, UnixDomainSocketConnection):
        _, line = await loop.create_unix_connection(make, told.path)
    else:
        tls = told.ssl_context.get() if isinstance(told, SSLConnection) else None
        _, line = await loop.create_connection(make, told.host, told.port, ssl=tls)
    try:
        if told.password:
            name = (told.username,) if told.username else ()
            await line.call("AUTH", *name, told.password)
        if told.db:
            await line.call("SELECT", told.db)
        await line.call("PING")
    except BaseException:
        line.close()
        raise
    return line


def packed(words: tuple[Word, ...]) -> bytes:
    """A command as it goes over the wire (RESP 2)."""
    parts = [b"*%d\r\n" % len(words)]
    for word in words:
        data = word if isinstance(word, bytes) else str(word).encode()
        parts.append(b"$%d\r\n%b\r\n" % (len(data), data))
    return b"".join(parts)


class Replies:
    """Bytes of RESP 2 to answers: ``bytes``, ``int``, None, lists of them, :class:`ErrorReply`."""

    def __init__(self) -> None:
        self._buffer = b""
        self._open: list[tuple[list[Any], int]] = []  # lists that are not whole, with their lengths

    def feed(self, data: bytes) -> list[Any]:
        """The answers that are whole now. Raises ``ValueError`` for what is no RESP 2."""
        buffer = self._buffer + data if self._buffer else data
        answers: list[Any] = []
        at = 0
        while (end := buffer.find(b"\r\n", at)) >= 0:
            kind, line, after = buffer[at], buffer[at + 1 : end], end + 2
            value: Any = None
            if kind == ord("$"):
                length = int(line)
                if length >= 0:
                    if len(buffer) < after + length + 2:
                        break
                    value = buffer[after : after + length]
                    after += length + 2
            elif kind == ord("*"):
                length = int(line)
                if length > 0:
                    self._open.append(([], length))
                    at = after
                    continue
                value = [] if length == 0 else None
            else:
                value = _of_one_line(kind, line)
            at = after
            self._add(value, answers)
        self._buffer = buffer[at:]
        return answers

    def _add(self, value: Any, answers: list[Any]) -> None:
        """Put a value where it belongs: into the innermost list, and that, once whole, into its."""
        while self._open:
            items, length = self._open[-1]
            items.append(value)
            if len(items) < length:
                return
            self._open.pop()
            value = items
        answers.append(value)


def _of_one_line(kind: int, line: bytes) -> Any:
    if kind == ord(":"):
        return int(line)
    if kind == ord("+"):
        return line
    if kind == ord("-"):
        return ErrorReply(line.decode("utf-8", "replace"))
    raise ValueError(f"no RESP 2: {chr(kind)!r}")
