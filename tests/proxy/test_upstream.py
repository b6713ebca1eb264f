"""The edge to LiteLLM: what goes out, what comes back, and every library error in our words."""

from __future__ import annotations

import asyncio
import errno
import socket
import ssl
from collections.abc import AsyncIterator, Callable

import aiohttp
import httpx
import pytest
import respx

from mlx_stack_proxy.engine.headers import HOP_BY_HOP, passed_on
from mlx_stack_proxy.engine.upstream import BadTarget, Response, Upstream, UpstreamError
from mlx_stack_proxy.settings import UpstreamSettings

BASE = "http://litellm.test:4000"
CHAT = f"{BASE}/v1/chat/completions"
HEADERS = [(b"authorization", b"Bearer k"), (b"x-own", b"1"), (b"x-own", b"2")]


@pytest.fixture
def router() -> respx.MockRouter:
    return respx.MockRouter(assert_all_called=False)


@pytest.fixture
def upstream(router: respx.MockRouter) -> Upstream:
    transport = httpx.MockTransport(router.async_handler)
    return Upstream(UpstreamSettings(base_url=f"{BASE}/"), transport)


class Body(httpx.AsyncByteStream):
    """Pieces of a body, then perhaps an error; knows whether it was closed."""

    def __init__(self, *pieces: bytes | Exception) -> None:
        self.pieces = pieces
        self.closed = False

    async def __aiter__(self) -> AsyncIterator[bytes]:
        for piece in self.pieces:
            if isinstance(piece, Exception):
                raise piece
            yield piece

    async def aclose(self) -> None:
        self.closed = True


async def post(upstream: Upstream, content: bytes = b"{}") -> Response:
    return await upstream.send("POST", "/v1/chat/completions", HEADERS, content)


async def test_a_request_goes_out_as_it_is(router: respx.MockRouter, upstream: Upstream) -> None:
    route = router.post(CHAT, params={"a": "1"}).respond(201, content=b"made")
    response = await upstream.send("POST", "/v1/chat/completions?a=1", HEADERS, b'{"a":1}')
    assert (response.status, await response.read()) == (201, b"made")
    request = route.calls.last.request
    assert request.content == b'{"a":1}'
    assert request.headers.get_list("x-own") == ["1", "2"]
    assert request.headers["authorization"] == "Bearer k"
    # Nothing of the library's own: no user agent, no accepted encodings.
    assert {name for name, _ in request.headers.items()} <= {
        "authorization",
        "x-own",
        "host",
        "content-length",
    }


async def test_only_connecting_has_a_limit_of_the_transports() -> None:
    upstream = Upstream(UpstreamSettings(base_url=BASE))
    transport = upstream._open()
    limits = transport._session.timeout  # type: ignore[attr-defined]
    assert limits == aiohttp.ClientTimeout(total=None, sock_connect=5.0)
    await upstream.aclose()


async def test_an_upload_is_streamed(router: respx.MockRouter, upstream: Upstream) -> None:
    route = router.post(f"{BASE}/v1/files").respond(200)

    async def pieces() -> AsyncIterator[bytes]:
        yield b"one "
        yield b"two"

    await upstream.send("POST", "/v1/files", [], pieces())
    assert route.calls.last.request.content == b"one two"


@pytest.mark.parametrize("status", [200, 301, 404, 429, 500])
async def test_every_status_is_an_answer(
    status: int, router: respx.MockRouter, upstream: Upstream
) -> None:
    router.post(CHAT).respond(status, headers={"Location": "/else", "Set-Cookie": "a=b"})
    response = await post(upstream)
    assert response.status == status  # no redirect is followed
    assert response.header(b"location") == b"/else"
    assert response.header(b"x-none") == b""
    assert all(name == name.lower() for name, _ in response.headers)


async def test_the_body_comes_piece_by_piece(router: respx.MockRouter, upstream: Upstream) -> None:
    body = Body(b"data: 1\n\n", b"data: 2\n\n")
    router.post(CHAT).mock(return_value=httpx.Response(200, stream=body))
    response = await post(upstream)
    assert [await response.next_bytes() for _ in range(3)] == [b"data: 1\n\n", b"data: 2\n\n", b""]
    assert await response.next_bytes() == b""
    await response.aclose()
    assert body.closed


async def test_a_body_over_the_limit(router: respx.MockRouter, upstream: Upstream) -> None:
    body = Body(b"12345", b"67890", b"1")
    router.post(CHAT).mock(side_effect=lambda _: httpx.Response(200, stream=body))
    assert await (await post(upstream)).read(11) == b"12345678901"
    with pytest.raises(UpstreamError, match="a body of more than 10 bytes"):
        await (await post(upstream)).read(10)


async def test_what_is_left_is_drained_and_faults_in_it_do_not_matter(
    router: respx.MockRouter, upstream: Upstream
) -> None:
    body = Body(b"1", b"2", httpx.ReadError("gone"))
    router.post(CHAT).mock(return_value=httpx.Response(200, stream=body))
    response = await post(upstream)
    assert await response.next_bytes() == b"1"
    await response.drain()
    await response.aclose()
    assert body.closed


def caused(error: Exception, cause: Exception) -> Exception:
    error.__cause__ = cause
    return error


def connection_key() -> aiohttp.client_reqrep.ConnectionKey:
    return aiohttp.client_reqrep.ConnectionKey("litellm.test", 4000, False, True, None, None, None)


def connector_error() -> Exception:
    return aiohttp.ClientConnectorError(connection_key(), OSError(111, "refused"))


REFUSED = ("the connection was refused", True, False)
ERRORS: dict[str, tuple[Callable[[], Exception], tuple[str, bool, bool]]] = {
    "refused, httpx": (lambda: httpx.ConnectError("no"), REFUSED),
    "refused, over aiohttp": (
        lambda: caused(httpx.ConnectError("no"), connector_error()),
        REFUSED,
    ),
    "refused, by aiohttp itself": (
        lambda: caused(connector_error(), OSError(111, "refused")),
        REFUSED,
    ),
    "no such name": (
        lambda: caused(
            aiohttp.ClientConnectorDNSError(connection_key(), OSError(-2, "unknown")),
            socket.gaierror(-2, "unknown"),
        ),
        ("its name can't be resolved", True, False),
    ),
    "a network that is gone": (
        lambda: caused(
            aiohttp.ClientConnectorError(connection_key(), OSError(errno.ENETUNREACH, "gone")),
            OSError(errno.ENETUNREACH, "gone"),
        ),
        ("no connection (Network is unreachable)", True, False),
    ),
    "no TLS": (
        lambda: caused(
            aiohttp.ClientConnectorSSLError(connection_key(), OSError(1, "ssl")),
            ssl.SSLError("ssl"),
        ),
        ("it does not speak TLS as it should", True, False),
    ),
    "broken off, by aiohttp itself": (
        lambda: caused(
            aiohttp.ClientPayloadError("p"), aiohttp.http_exceptions.TransferEncodingError("t")
        ),
        ("the connection broke off inside the answer", False, False),
    ),
    "no connection in time": (
        lambda: caused(httpx.ConnectTimeout("t"), aiohttp.ConnectionTimeoutError()),
        ("no connection within the time limit", True, False),
    ),
    "closed before an answer": (
        lambda: caused(httpx.ReadError("r"), aiohttp.ServerDisconnectedError()),
        ("the connection was closed before an answer came", False, False),
    ),
    "broken inside the answer": (
        lambda: caused(httpx.ReadError("r"), aiohttp.ClientPayloadError("p")),
        ("the connection broke off inside the answer", False, False),
    ),
    "broken, not wrapped": (
        lambda: aiohttp.ClientPayloadError("p"),
        ("the connection broke off inside the answer", False, False),
    ),
    "reset": (
        lambda: ConnectionResetError(104, "reset"),
        ("the connection failed (ConnectionResetError)", False, False),
    ),
    "reset, wrapped as a timeout": (
        lambda: caused(httpx.ReadTimeout("t"), ConnectionResetError(104, "reset")),
        ("the connection failed (ConnectionResetError)", False, False),
    ),
    "silence": (lambda: httpx.ReadTimeout("t"), ("the connection timed out", False, True)),
    "a pool that is full": (
        lambda: httpx.PoolTimeout("t"),
        ("the connection timed out", False, True),
    ),
    "no HTTP": (
        lambda: httpx.RemoteProtocolError("sk-secret in it"),
        ("the connection failed (RemoteProtocolError)", False, False),
    ),
    "a bad answer": (
        lambda: caused(httpx.ReadError("r"), aiohttp.ClientResponseError(None, ())),  # type: ignore[arg-type]
        ("the connection failed (ClientResponseError)", False, False),
    ),
}


@pytest.mark.parametrize("name", ERRORS)
async def test_an_error_instead_of_an_answer(
    name: str, router: respx.MockRouter, upstream: Upstream
) -> None:
    make, (message, refused, timed_out) = ERRORS[name]
    error = make()

    def handler(request: httpx.Request) -> httpx.Response:
        raise error

    upstream = Upstream(UpstreamSettings(base_url=BASE), httpx.MockTransport(handler))
    with pytest.raises(UpstreamError) as caught:
        await post(upstream)
    found = caught.value
    assert (str(found), found.refused, found.timed_out) == (message, refused, timed_out)


@pytest.mark.parametrize("name", ERRORS)
async def test_an_error_inside_the_answer(
    name: str, router: respx.MockRouter, upstream: Upstream
) -> None:
    make, (message, _, timed_out) = ERRORS[name]
    body = Body(b"1", make())
    router.post(CHAT).mock(return_value=httpx.Response(200, stream=body))
    response = await post(upstream)
    assert await response.next_bytes() == b"1"
    with pytest.raises(UpstreamError) as caught:
        await response.next_bytes()
    assert (str(caught.value), caught.value.timed_out) == (message, timed_out)


async def test_a_connection_that_closed_before_anybody_waited_for_more(
    router: respx.MockRouter, upstream: Upstream
) -> None:
    body = Body(b"1", RuntimeError("Connection closed."))
    router.post(CHAT).mock(return_value=httpx.Response(200, stream=body))
    response = await post(upstream)
    assert await response.next_bytes() == b"1"
    with pytest.raises(UpstreamError, match="the connection broke off inside the answer"):
        await response.next_bytes()


async def test_the_routers_own_errors_are_translated_too(
    router: respx.MockRouter, upstream: Upstream
) -> None:
    router.post(CHAT).mock(side_effect=httpx.ConnectError)
    with pytest.raises(UpstreamError) as caught:
        await post(upstream)
    assert caught.value.refused


async def test_a_name_that_nobody_knows_is_no_connection() -> None:
    upstream = Upstream(UpstreamSettings(base_url="http://no.such.host.invalid:4000"))
    try:
        with pytest.raises(UpstreamError) as caught:
            await post(upstream)
    finally:
        await upstream.aclose()
    assert (str(caught.value), caught.value.refused) == ("its name can't be resolved", True)


async def test_a_cancelled_wait_is_no_upstream_error(upstream: Upstream) -> None:
    async def never(request: httpx.Request) -> httpx.Response:
        await asyncio.Event().wait()
        raise AssertionError

    slow = Upstream(UpstreamSettings(base_url=BASE), httpx.MockTransport(never))
    waiting = asyncio.create_task(post(slow))
    await asyncio.sleep(0)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting


@pytest.mark.parametrize("target", ["/v1/" + "a" * 70_000, "/v1/a\x7fb", "/v1/\n"])
async def test_a_path_that_no_url_can_hold(target: str, upstream: Upstream) -> None:
    with pytest.raises(BadTarget):
        await upstream.send("GET", target, [])


@pytest.mark.parametrize("target", ["//evil.test/x", "/v1/@evil.test", "/v1/[x", "/v1//a//b?c=[]"])
async def test_a_path_never_names_another_server(
    target: str, router: respx.MockRouter, upstream: Upstream
) -> None:
    route = router.route(host="litellm.test").respond(200)
    assert (await upstream.send("GET", target, [])).status == 200
    assert route.calls.last.request.url.port == 4000


async def test_to_close_what_was_never_opened() -> None:
    await Upstream(UpstreamSettings()).aclose()


# Headers that go on


def test_hop_by_hop_headers_and_our_own_are_dropped() -> None:
    headers = [
        (b"connection", b"keep-alive, X-Custom , close"),
        (b"x-custom", b"named by connection"),
        (b"keep-alive", b"timeout=5"),
        (b"te", b"trailers"),
        (b"transfer-encoding", b"chunked"),
        (b"upgrade", b"h2c"),
        (b"proxy-authorization", b"Basic x"),
        (b"x-mlx-stack-tier", b"fast"),
        (b"cookie", b"a=b"),
        (b"authorization", b"Bearer k"),
        (b"accept", b"a"),
        (b"accept", b"b"),
    ]
    assert passed_on(headers, HOP_BY_HOP | {b"cookie"}) == [
        (b"authorization", b"Bearer k"),
        (b"accept", b"a"),
        (b"accept", b"b"),
    ]
