"""A server may close an idle connection while the proxy sends the next request on it."""

from __future__ import annotations

import socket
from collections.abc import AsyncIterator
from typing import Any

import pytest
from aiohttp.client_reqrep import ClientRequest

from mlx_stack_proxy.engine.upstream import (
    CHAT_HEADERS,
    CHAT_PATH,
    IDLE_SECONDS,
    Upstream,
    UpstreamError,
)
from mlx_stack_proxy.settings import UpstreamSettings
from tests.support.scripted_server import CLOSE, RESET, Piece, Reply, ScriptedServer
from tests.support.waiting import until

OK = Reply.json({"ok": True})


@pytest.fixture
async def edge(upstream: ScriptedServer) -> AsyncIterator[Upstream]:
    opened = Upstream(UpstreamSettings(base_url=upstream.url))
    yield opened
    await opened.aclose()


async def ask(edge: Upstream, content: bytes | None = b"{}", method: str = "POST") -> int:
    response = await edge.send(method, CHAT_PATH, CHAT_HEADERS, content)
    while await response.next_bytes():
        pass
    await response.aclose()
    return response.status


def test_idle_connections_are_kept_for_less_than_uvicorn_keeps_them() -> None:
    from uvicorn import Config

    theirs = Config(app="").timeout_keep_alive
    assert 0 < IDLE_SECONDS < theirs - 1


async def test_a_connection_is_used_again(upstream: ScriptedServer, edge: Upstream) -> None:
    upstream.always(OK)
    for _ in range(3):
        assert await ask(edge) == 200
    assert len(upstream.connections) == 1


async def test_one_that_was_closed_unseen_is_not_used_again(
    upstream: ScriptedServer, edge: Upstream
) -> None:
    """The end has come, and the loop was too busy to look."""
    upstream.always(OK)
    await ask(edge)
    (connection,) = upstream.connections
    assert connection.transport is not None
    connection.transport.get_extra_info("socket").shutdown(socket.SHUT_RDWR)
    assert await ask(edge) == 200
    assert len(upstream.calls) == 2


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


async def test_what_has_no_body_may_be_asked_again_by_get(
    upstream: ScriptedServer, edge: Upstream
) -> None:
    upstream.will(OK, Reply.raw(CLOSE), OK)
    await ask(edge)
    assert await ask(edge, None, "GET") == 200
    await until(lambda: len(upstream.calls) == 3)
