"""Connections to Redis: one that was closed is opened again, and none is let go."""

from __future__ import annotations

import asyncio
import gc

import pytest

from mlx_stack_proxy.state.redis_connections import Connections
from tests.support.redis_server import RedisServer


def parsers() -> int:
    """Those of connections, also of ones that nobody has any more."""
    return sum("Parser" in type(one).__name__ for one in gc.get_objects())


async def test_given_up_calls_leave_no_connection_behind(
    redis_server: RedisServer, no_collector: None
) -> None:
    connections = Connections(redis_server.url, 2.0)
    before = parsers()
    for _ in range(20):
        call = asyncio.ensure_future(connections.ask("BLPOP", "nothing", 30))
        await asyncio.sleep(0)
        assert await connections.ask("PING") == b"PONG"
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
    assert await asyncio.gather(*(connections.ask("PING") for _ in range(3))) == [b"PONG"] * 3
    assert parsers() - before <= 3
    await connections.drop()
    assert await connections.ask("PING") == b"PONG"
    assert parsers() - before <= 3
    await connections.drop()
