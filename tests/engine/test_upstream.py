"""The client of LiteLLM: what it sends, what it reads, and each library error as our own error."""

from __future__ import annotations

import asyncio
import errno
import socket
import ssl
from base64 import b64encode
from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import pytest
from aiohttp.client_reqrep import ClientRequest

from mlx_stack_proxy.engine.upstream import (
    CHAT_HEADERS,
    CHAT_PATH,
    IDLE_SECONDS,
    BadTarget,
    Response,
    Upstream,
    UpstreamError,
    translated,
)
from mlx_stack_proxy.settings import UpstreamSettings
from tests.support.scripted_server import CLOSE, RESET, SILENCE, Piece, Reply, ScriptedServer, Wait
from tests.support.waiting import until

HEADERS = [(b"authorization", b"Bearer k"), (b"x-own", b"1"), (b"x-own", b"2")]


@pytest.fixture
async def edge(upstream: ScriptedServer) -> AsyncIterator[Upstream]:
    opened = Upstream(UpstreamSettings(base_url=f"{upstream.url}/"))
    yield opened
    await opened.aclose()


async def post(edge: Upstream, content: bytes = b"{}") -> Response:
    return await edge.send("POST", "/v1/chat/completions", HEADERS, content)


async def test_a_request_goes_out_as_it_is(upstream: ScriptedServer, edge: Upstream) -> None:
    upstream.will(Reply(201, (), (b"made",)))
    response = await edge.send("POST", "/v1/chat/completions?a=1", HEADERS, b'{"a":1}')
    assert (response.status, await response.read()) == (201, b"made")
    (call,) = upstream.calls
    assert (call.target, bytes(call.body)) == ("/v1/chat/completions?a=1", b'{"a":1}')
    assert [value for name, value in call.headers if name == "x-own"] == ["1", "2"]
    assert call.header("authorization") == "Bearer k"
    # Nothing of the library's own: no user agent, no accepted encodings.
    assert {name for name, _ in call.headers} == {
        "authorization",
        "x-own",
        "host",
        "content-length",
    }


@pytest.mark.parametrize(
    ("headers", "authorization"),
    [(HEADERS, "Bearer k"), ([], f"Basic {b64encode('us:er:p@ä'.encode()).decode()}")],
    ids=["a key", "no key"],
)
async def test_a_url_with_a_user_counts_where_a_request_has_no_key(
    headers: list[tuple[bytes, bytes]], authorization: str, upstream: ScriptedServer
) -> None:
    url = upstream.url.replace("://", "://us%3Aer:p%40%C3%A4@")
    edge = Upstream(UpstreamSettings(base_url=url))
    upstream.will(Reply())
    await (await edge.send("POST", CHAT_PATH, headers, b"{}")).aclose()
    await edge.aclose()
    assert upstream.calls[0].header("authorization") == authorization


@pytest.mark.parametrize("status", [200, 301, 404, 429, 500])
async def test_every_status_is_an_answer(
    status: int, upstream: ScriptedServer, edge: Upstream
) -> None:
    upstream.will(Reply(status, (("Location", "/else"), ("Set-Cookie", "a=b"))), Reply())
    response = await post(edge)
    assert response.status == status  # no redirect is followed
    assert response.header(b"location") == b"/else"
    assert response.header(b"x-none") == b""
    assert all(name == name.lower() for name, _ in response.headers)
    await response.aclose()
    await (await post(edge)).aclose()
    assert upstream.calls[1].header("cookie") is None


async def test_a_body_over_the_limit(upstream: ScriptedServer, edge: Upstream) -> None:
    upstream.always(Reply(200, (), (b"12345", b"67890", b"1")))
    assert await (await post(edge)).read(11) == b"12345678901"
    assert await (await post(edge)).read(10, cut=True) == b"1234567890"
    with pytest.raises(UpstreamError, match="a body of more than 10 bytes"):
        await (await post(edge)).read(10)


async def test_what_is_left_is_drained_and_faults_in_it_do_not_matter(
    upstream: ScriptedServer, edge: Upstream
) -> None:
    go_on = asyncio.Event()
    upstream.will(Reply.sse(b"1", Wait(go_on), b"2", CLOSE))
    response = await post(edge)
    assert await response.next_bytes() == b"1"
    go_on.set()
    await response.drain()
    await response.aclose()


def caused(error: Exception, cause: Exception) -> Exception:
    error.__cause__ = cause
    return error


KEY = aiohttp.client_reqrep.ConnectionKey("litellm.test", 4000, False, True, None, None, None)

ERRORS: dict[str, tuple[Exception, tuple[str, bool]]] = {
    "refused": (
        caused(aiohttp.ClientConnectorError(KEY, OSError(111, "no")), OSError(111, "no")),
        ("the connection was refused", True),
    ),
    "no such name": (
        caused(
            aiohttp.ClientConnectorDNSError(KEY, OSError(-2, "unknown")),
            socket.gaierror(-2, "unknown"),
        ),
        ("its name can't be resolved", True),
    ),
    "a network that is gone": (
        caused(
            aiohttp.ClientConnectorError(KEY, OSError(errno.ENETUNREACH, "gone")),
            OSError(errno.ENETUNREACH, "gone"),
        ),
        ("no connection (Network is unreachable)", True),
    ),
    "no TLS": (
        caused(aiohttp.ClientConnectorSSLError(KEY, OSError(1, "ssl")), ssl.SSLError("ssl")),
        ("its TLS handshake fails", True),
    ),
    "no connection in time": (
        caused(aiohttp.ConnectionTimeoutError(), TimeoutError()),
        ("no connection within the time limit", True),
    ),
    "closed before an answer": (
        aiohttp.ServerDisconnectedError(),
        ("the connection was closed before an answer came", False),
    ),
    "broken inside the answer": (
        caused(aiohttp.ClientPayloadError("p"), aiohttp.http_exceptions.TransferEncodingError("t")),
        ("the connection broke off inside the answer", False),
    ),
    "closed before anybody waited for more": (
        RuntimeError("Connection closed."),
        ("the connection broke off inside the answer", False),
    ),
    "reset": (
        ConnectionResetError(104, "reset"),
        ("the connection failed (ConnectionResetError)", False),
    ),
    "no HTTP": (
        aiohttp.ClientResponseError(None, (), message="sk-secret in it"),  # type: ignore[arg-type]
        ("the connection failed (ClientResponseError)", False),
    ),
}


@pytest.mark.parametrize("name", ERRORS)
def test_an_error_in_our_words(name: str) -> None:
    error, expected = ERRORS[name]
    found = translated(error)
    assert (str(found), found.unreachable) == expected


async def test_an_error_instead_of_an_answer(upstream: ScriptedServer, edge: Upstream) -> None:
    upstream.will(Reply.raw(b"no HTTP at all\r\n\r\n"), Reply.raw(CLOSE))
    with pytest.raises(UpstreamError, match=r"^the connection failed"):
        await post(edge)
    with pytest.raises(UpstreamError, match="closed before an answer came"):
        await post(edge)
    await upstream.stop()
    with pytest.raises(UpstreamError, match="the connection was refused") as caught:
        await post(edge)
    assert caught.value.unreachable


async def test_a_cancelled_wait_is_no_upstream_error_and_ends_the_call_at_once(
    upstream: ScriptedServer, edge: Upstream
) -> None:
    upstream.will(Reply.raw(SILENCE))
    waiting = asyncio.create_task(post(edge))
    call = await upstream.next_call()
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert await call.left_within(5)


@pytest.mark.parametrize("target", ["/v1/" + "a" * 70_000, "/v1/a\x7fb", "/v1/\n", "/v1/\xe4"])
async def test_a_path_that_no_url_can_hold(target: str) -> None:
    with pytest.raises(BadTarget):
        await Upstream(UpstreamSettings()).send("GET", target, [])


@pytest.mark.parametrize("target", ["//evil.test/x", "/v1/@evil.test", "/v1/[x", "/v1//a//b?c=[]"])
async def test_a_path_never_names_another_server(
    target: str, upstream: ScriptedServer, edge: Upstream
) -> None:
    upstream.will(Reply())
    assert (await edge.send("GET", target, [])).status == 200
    assert upstream.calls[0].target == target  # as it came, too


# A server may close an idle connection while the proxy sends the next request on it.

OK = Reply.json({"ok": True})


async def ask(
    edge: Upstream, content: bytes | None = b"{}", method: str = "POST", repeatable: bool = False
) -> int:
    response = await edge.send(method, CHAT_PATH, CHAT_HEADERS, content, repeatable=repeatable)
    while await response.next_bytes():
        pass
    await response.aclose()
    return response.status


def test_idle_connections_are_kept_for_less_than_uvicorn_keeps_them() -> None:
    from uvicorn import Config

    theirs = Config(app="").timeout_keep_alive
    assert 0 < IDLE_SECONDS < theirs - 1


async def test_one_that_was_closed_unseen_is_not_used_again(
    upstream: ScriptedServer, edge: Upstream
) -> None:
    """The end has come, and the loop was too busy to look."""
    upstream.always(OK)
    for _ in range(2):
        await ask(edge)
    (connection,) = upstream.connections
    assert connection.transport is not None
    connection.transport.get_extra_info("socket").shutdown(socket.SHUT_RDWR)
    assert await ask(edge) == 200
    assert len(upstream.calls) == 3


class Breaking:
    """The connection breaks as a request's body is about to be written. ``at``: which requests'."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *at: int) -> None:
        self.calls = 0
        theirs = ClientRequest.write_bytes

        async def write(request: ClientRequest, writer: Any, conn: Any, *more: Any) -> None:
            self.calls += 1
            if self.calls in at:
                conn.protocol.transport.abort()
            await theirs(request, writer, conn, *more)

        monkeypatch.setattr(ClientRequest, "write_bytes", write)


@pytest.mark.parametrize("content", [b"{}", b"x" * 500_000], ids=["short", "large"])
async def test_what_was_not_written_is_sent_on_a_new_connection(
    content: bytes, upstream: ScriptedServer, edge: Upstream, monkeypatch: pytest.MonkeyPatch
) -> None:
    upstream.always(OK)
    Breaking(monkeypatch, 2)
    assert await ask(edge) == 200
    assert await ask(edge, content) == 200
    whole = [call for call in upstream.calls if call.whole.is_set()]
    assert [bytes(call.body) for call in whole] == [b"{}", content]


async def test_it_is_tried_once_more_and_no_more(
    upstream: ScriptedServer, edge: Upstream, monkeypatch: pytest.MonkeyPatch
) -> None:
    upstream.always(OK)
    breaking = Breaking(monkeypatch, 1, 2)
    with pytest.raises(UpstreamError):
        await ask(edge)
    assert breaking.calls == 2


@pytest.mark.parametrize("end", [CLOSE, RESET], ids=["closed", "reset"])
@pytest.mark.parametrize("content", [b"{}", None], ids=["bytes", "none"])
async def test_what_was_written_is_not_sent_again(
    end: Piece, content: bytes | None, upstream: ScriptedServer, edge: Upstream
) -> None:
    """The server may have done what it was asked."""
    upstream.will(OK, Reply.raw(end), OK)
    await ask(edge)
    with pytest.raises(UpstreamError):
        await ask(edge, content)
    assert len(upstream.calls) == 2


async def test_what_is_repeatable_is_sent_once_more_and_no_more(
    upstream: ScriptedServer, edge: Upstream
) -> None:
    upstream.will(OK, Reply.raw(CLOSE), OK, Reply.raw(CLOSE), Reply.raw(CLOSE))
    await ask(edge)
    assert await ask(edge, repeatable=True) == 200
    assert len(upstream.calls) == 3
    with pytest.raises(UpstreamError):
        await ask(edge, repeatable=True)
    assert len(upstream.calls) == 5


async def test_what_has_no_body_may_be_asked_again_by_get(
    upstream: ScriptedServer, edge: Upstream
) -> None:
    upstream.will(OK, Reply.raw(CLOSE), OK)
    await ask(edge)
    assert await ask(edge, None, "GET") == 200
    await until(lambda: len(upstream.calls) == 3)
