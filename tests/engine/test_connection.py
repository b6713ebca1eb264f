"""One HTTP/1.1 connection to a server: answers as servers write them, and what breaks them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from mlx_stack_proxy.engine.connection import MAX_HEAD, READ_BUFFER, Address, Server, address_of
from mlx_stack_proxy.engine.upstream import Response, Upstream, UpstreamError
from mlx_stack_proxy.settings import UpstreamSettings
from tests.support.scripted_server import CLOSE, RESET, SILENCE, Piece, Reply, ScriptedServer, Wait
from tests.support.waiting import until

HEAD = b"HTTP/1.1 200 OK\r\n"
CHUNKED = HEAD + b"Transfer-Encoding: chunked\r\n\r\n"


@pytest.fixture
async def edge(upstream: ScriptedServer) -> AsyncIterator[Upstream]:
    opened = Upstream(UpstreamSettings(base_url=upstream.url))
    yield opened
    await opened.aclose()


async def asked(edge: Upstream, method: str = "POST") -> Response:
    return await edge.send(method, "/v1/x", [], b"{}" if method == "POST" else None)


# As sent; the body; whether the connection serves the next request, too.
ANSWERS: dict[str, tuple[tuple[Piece, ...], bytes, bool]] = {
    "a length": ((HEAD + b"Content-Length: 2\r\n\r\nok",), b"ok", True),
    "chunks": ((CHUNKED + b"2\r\nok\r\n0\r\n\r\n",), b"ok", True),
    "a space after a chunk's size": ((CHUNKED + b"2 \r\nok\r\n0\r\n\r\n",), b"ok", True),
    "a trailer": ((CHUNKED + b"2\r\nok\r\n0\r\nX-Sum: 1\r\n\r\n",), b"ok", True),
    "bare line feeds": ((b"HTTP/1.1 200 OK\nContent-Length: 2\n\nok",), b"ok", True),
    "nothing": ((b"HTTP/1.1 204 No Content\r\n\r\n",), b"", True),
    "an interim answer": (
        (b"HTTP/1.1 100 Continue\r\nx-a: 1\r\n\r\n" + HEAD + b"Content-Length: 2\r\n\r\nok",),
        b"ok",
        True,
    ),
    "to the end": ((HEAD + b"\r\nok", CLOSE), b"ok", False),
    "HTTP/1.0": ((b"HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\nok",), b"ok", False),
    "close": ((HEAD + b"Connection: close\r\nContent-Length: 2\r\n\r\nok",), b"ok", False),
    "two answers": ((HEAD + b"Content-Length: 2\r\n\r\nok" + HEAD + b"\r\n",), b"ok", False),
}


@pytest.mark.parametrize("whole", [True, False], ids=["at once", "byte by byte"])
@pytest.mark.parametrize("name", ANSWERS)
async def test_answers(name: str, whole: bool, upstream: ScriptedServer, edge: Upstream) -> None:
    pieces, body, keeps = ANSWERS[name]
    if not whole:
        single = [[bytes([one]) for one in p] if isinstance(p, bytes) else [p] for p in pieces]
        pieces = tuple(piece for parts in single for piece in parts)
    upstream.will(Reply.raw(*pieces, SILENCE))
    response = await asked(edge)
    assert await response.read() == body
    assert not any(name in (b"x-a", b"x-sum") for name, _ in response.headers)
    if whole:
        assert response._connection is not None
        assert response._connection.reusable is keeps
    await response.aclose()


async def test_an_answer_to_head_has_no_body(upstream: ScriptedServer, edge: Upstream) -> None:
    upstream.will(Reply.raw(HEAD + b"Content-Length: 9\r\n\r\n"))
    response = await asked(edge, "HEAD")
    assert (response.header(b"content-length"), await response.read()) == (b"9", b"")
    await response.aclose()


@pytest.mark.parametrize(
    ("pieces", "words"),
    [
        ((b"HTTP/1.1 2",), "the connection was closed before an answer came"),
        ((b"HTTP/1.1 2", RESET), r"the connection failed \(ConnectionResetError\)"),
        ((HEAD + b"no header\r\n\r\n",), r"the connection failed \(HttpParserError\)"),
        ((b"HTTP/1.1 101 Now\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n",), "the connection"),
        ((HEAD + b"a: " + b"x" * 2 * MAX_HEAD,), "an answer's headers have more than"),
    ],
)
async def test_no_answer(
    pieces: tuple[Piece, ...], words: str, upstream: ScriptedServer, edge: Upstream
) -> None:
    upstream.will(Reply.raw(*pieces, CLOSE))
    with pytest.raises(UpstreamError, match=words) as caught:
        await asked(edge)
    assert not caught.value.unreachable


@pytest.mark.parametrize(
    "pieces",
    [
        (HEAD + b"Content-Length: 3\r\n\r\nok", CLOSE),
        (CHUNKED + b"2\r\nok\r\n", CLOSE),
        (CHUNKED + b"2\r\nok\r\n", RESET),
        (CHUNKED + b"2\r\nok\r\nno size\r\n",),
        (HEAD + b"\r\nok", RESET),
    ],
)
async def test_an_answer_that_breaks_off(
    pieces: tuple[Piece, ...], upstream: ScriptedServer, edge: Upstream
) -> None:
    upstream.will(Reply.raw(*pieces))
    response = await asked(edge)
    with pytest.raises(UpstreamError, match="the connection broke off inside the answer"):
        await response.read()
    await response.aclose()


async def test_a_connection_on_which_nobody_asked_for_what_came_is_not_used_again(
    upstream: ScriptedServer, edge: Upstream
) -> None:
    late = asyncio.Event()
    late_answer = HEAD + b"Content-Length: 4\r\n\r\nlate"
    upstream.will(Reply.raw(HEAD + b"Content-Length: 2\r\n\r\nok", Wait(late), late_answer))
    response = await asked(edge)
    assert await response.read() == b"ok"
    await response.aclose()
    late.set()
    assert await upstream.calls[0].left_within(5)
    upstream.will(Reply.raw(HEAD + b"Content-Length: 2\r\n\r\nok"))
    assert await (await asked(edge)).read() == b"ok"


async def test_what_nobody_read_of_an_answer_is_not_the_next_ones(
    upstream: ScriptedServer, edge: Upstream
) -> None:
    upstream.will(Reply(200, (), (b"unread",)), Reply(200, (), (b"x" * 2 * READ_BUFFER,)))
    response = await asked(edge)
    used = response._connection
    assert used is not None
    await until(lambda: used.whole)
    await response.aclose()
    response = await asked(edge)
    assert response._connection is used
    assert await response.read() == b"x" * 2 * READ_BUFFER
    await response.aclose()


async def test_a_server_waits_for_a_reader(upstream: ScriptedServer, edge: Upstream) -> None:
    size = 64 * READ_BUFFER
    upstream.will(Reply(200, (), (b"x" * size,)))
    response = await asked(edge)
    first = await response.next_bytes()
    await until(lambda: response._connection is not None and response._connection._paused)
    second = await response.next_bytes()
    assert READ_BUFFER < len(second) < size // 8  # one read of the socket more, no more
    assert len(first) + len(second) + len(await response.read()) == size
    await response.aclose()


async def test_a_header_to_send_holds_no_line_break(edge: Upstream) -> None:
    with pytest.raises(UpstreamError, match="a header to send has a line break in it"):
        await edge.send("POST", "/v1/x", [(b"authorization", b"Bearer k\r\nx-a: 1")], b"{}")


@pytest.mark.parametrize(
    ("url", "server", "name", "target"),
    [
        ("http://Host", Server(False, "host", 80), b"host", ""),
        ("https://host:443/a?b=c#d", Server(True, "host", 443), b"host", "/a?b=c"),
        ("http://[::1]:4000/v1", Server(False, "::1", 4000), b"[::1]:4000", "/v1"),
        ("http://bücher.test:80", Server(False, "bücher.test", 80), b"xn--bcher-kva.test", ""),
    ],
)
def test_addresses(url: str, server: Server, name: bytes, target: str) -> None:
    assert address_of(url) == Address(server, name, target, b"")


@pytest.mark.parametrize("url", ["http://", "ftp://host", "http://host:x", "http://host:70000"])
def test_a_url_that_leads_nowhere(url: str) -> None:
    with pytest.raises(ValueError):
        address_of(url)
