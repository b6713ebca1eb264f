"""The wire to Redis: answers cut anywhere, questions of many at once, what a URL says."""

from __future__ import annotations

import asyncio
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.state.redis_line import ErrorReply, Line, NoAnswer, Replies, connect, told_by
from tests.support.redis_server import RedisServer

SECONDS = 20.0
VALUES = st.recursive(
    st.none() | st.integers() | st.binary(max_size=40), lambda inner: st.lists(inner, max_size=4)
)


def encoded(value: Any) -> bytes:
    match value:
        case None:
            return b"$-1\r\n"
        case int():
            return b":%d\r\n" % value
        case bytes():
            return b"$%d\r\n%b\r\n" % (len(value), value)
    return b"*%d\r\n" % len(value) + b"".join(map(encoded, value))


@given(st.lists(VALUES, max_size=5), st.lists(st.integers(0, 300), max_size=6))
def test_answers_may_be_cut_anywhere(values: list[Any], cuts: list[int]) -> None:
    wire = b"".join(map(encoded, values))
    bounds = sorted({0, len(wire), *(cut for cut in cuts if cut < len(wire))})
    replies = Replies()
    found = []
    for start, end in pairwise(bounds):
        found += replies.feed(wire[start:end])
    assert found == values


def test_words_errors_and_null_lists() -> None:
    ok, error, nothing, inner = Replies().feed(b"+OK\r\n-ERR no\r\n*-1\r\n*1\r\n-WRONG\r\n")
    assert (ok, str(error), nothing) == (b"OK", "ERR no", None)
    assert isinstance(error, ErrorReply) and isinstance(inner[0], ErrorReply)
    with pytest.raises(ValueError, match="RESP"):
        Replies().feed(b"HTTP/1.1 400\r\n")


@pytest.fixture
def server(tmp_path: Path) -> Any:
    running = RedisServer(tmp_path, "--unixsocket", str(tmp_path / "redis.sock"))
    running.start()
    yield running
    running.stop()


async def opened(url: str, seconds: float = SECONDS) -> Line:
    return await connect(told_by(url), seconds, lambda _: None)


async def test_what_many_ask_at_once_goes_out_together(server: RedisServer) -> None:
    line = await opened(server.url)
    writes: list[bytes] = []
    transport: Any = line._transport
    write = transport.write

    class Seen:
        def write(self, data: bytes) -> None:
            writes.append(data)
            write(data)

    line._transport = Seen()  # type: ignore[assignment]
    answers = await asyncio.gather(*(line.call("ECHO", n) for n in range(50)))
    assert answers == [str(n).encode() for n in range(50)]
    assert len(writes) == 1
    line._transport = transport
    line.close()
    with pytest.raises(ConnectionError):
        await line.call("PING")


async def test_a_socket_a_database_and_a_password(server: RedisServer, tmp_path: Path) -> None:
    line = await opened(f"unix://{tmp_path}/redis.sock?db=3")
    await line.call("SET", "key", b"\r\n\x00")
    assert await line.call("GET", "key") == b"\r\n\x00"
    with pytest.raises(ErrorReply, match="unknown command"):
        await line.call("NONSENSE")
    assert await line.call("CONFIG", "SET", "requirepass", "p@ss") == b"OK"
    line.close()
    with pytest.raises(ErrorReply, match="NOAUTH"):
        await opened(server.url)
    for who in ("", "default"):
        line = await opened(f"redis://{who}:p%40ss@127.0.0.1:{server.port}/3")
        assert await line.call("EXISTS", "key") == 1
        line.close()


async def test_no_answer_ends_the_connection_for_all(server: RedisServer) -> None:
    ended: list[Line] = []
    line = await connect(told_by(server.url), 0.1, ended.append)
    server.freeze()
    found = await asyncio.gather(*(line.call("PING") for _ in range(3)), return_exceptions=True)
    assert [type(one) for one in found] == [NoAnswer] * 3
    assert ended == [line]
