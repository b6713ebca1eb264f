"""How often an exchange asks Redis, as the server itself sees it (``MONITOR``)."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from redis.asyncio import Redis

from app.state.redis import RedisStore
from tests.shell.asking import ask
from tests.shell.conftest import StartProxy
from tests.support.redis_server import RedisServer
from tests.support.replies import text_stream
from tests.support.running_proxy import RunningProxy
from tests.support.scripted_server import ScriptedServer


@pytest.fixture
def redis(tmp_path: Path) -> Iterator[RedisServer]:
    server = RedisServer(tmp_path)
    server.start()
    yield server
    server.stop()


@asynccontextmanager
async def watched(redis: RedisServer, proxy: RunningProxy) -> AsyncIterator[list[str]]:
    """What comes in over the network meanwhile: our scripts by their names, else the command."""
    store = proxy.services.store
    assert isinstance(store, RedisStore)
    names = {script.sha: name for name, script in store._scripts.items()}
    seen: list[str] = []
    async with Redis.from_url(redis.url) as client, client.monitor() as monitor:
        yield seen
        assert redis.ask("ECHO", "enough") is not None
        while (told := await monitor.next_command())["command"] != "ECHO enough":
            if told["client_type"] != "lua":
                words = told["command"].split()
                seen.append(names[words[1]] if words[0] == "EVALSHA" else words[0])


async def test_an_exchange_asks_twice(
    upstream: ScriptedServer, start_proxy: StartProxy, redis: RedisServer
) -> None:
    proxy = await start_proxy({"state.backend": "redis", "state.redis_url": redis.url})
    upstream.always(lambda _: text_stream("Hello"))
    await ask(proxy)
    async with watched(redis, proxy) as seen:
        await ask(proxy)
    assert seen == ["load", "commit"]
