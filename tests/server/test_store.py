"""What proxies keep, with real files and a real Redis: counted before the client knows, shared."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from redis.asyncio import Redis

from mlx_stack_proxy.state.redis import RedisStore
from mlx_stack_proxy.telemetry import journal
from tests.server.asking import ask
from tests.server.calling import BAD, GOOD, RULES, TOOLS, calling
from tests.server.climbing import ESCALATION
from tests.server.conftest import StartProxy
from tests.server.counting import AGENT, BUDGET, NO_LOOPS, USED
from tests.state.reading import rows
from tests.support.redis_server import RedisServer
from tests.support.replies import text_stream
from tests.support.running_proxy import RunningProxy
from tests.support.scripted_server import Reply
from tests.support.waiting import until

pytestmark = pytest.mark.usefixtures("redis_asked_again_soon")
HARD = {f"{BUDGET}.policy": "hard_stop"}


def shared(redis: RedisServer) -> dict[str, Any]:
    return {"state.backend": "redis", "state.redis_url": redis.url, **NO_LOOPS}


async def store_of(proxy: RunningProxy) -> str:
    found: str = (await proxy.client.get("/ready")).json()["store"]
    return found


async def used(proxy: RunningProxy) -> Any:
    """None while the store knows no such session, or can't be asked."""
    return (await proxy.client.get("/mlx-stack/sessions/agent-one")).json().get("used")


def tokens_on_disk(path: Path) -> int:
    return sum(sum(json.loads(used).values()) for (used,) in rows(path, "used", "sessions"))


async def test_what_a_client_has_seen_finished_is_on_the_disk(
    start_proxy: StartProxy, tmp_path: Path
) -> None:
    path = tmp_path / "state.db"
    proxy = await start_proxy({"state.backend": "sqlite", "state.path": str(path), **NO_LOOPS})
    proxy.upstream.always(lambda _: text_stream("Hello"))
    for number in range(1, 5):
        response = await ask(proxy, AGENT, stream=number % 2 == 0)
        assert response.status_code == 200
        assert tokens_on_disk(path) == number * USED
    assert await store_of(proxy) == "ok"


async def test_redis_goes_and_comes_back(start_proxy: StartProxy, redis: RedisServer) -> None:
    proxy = await start_proxy(shared(redis))
    proxy.upstream.always(lambda _: text_stream("Hello"))
    await ask(proxy, AGENT)
    redis.kill()
    responses = await asyncio.gather(*(ask(proxy, AGENT) for _ in range(16)))
    assert [response.status_code for response in responses] == [200] * 16
    ready = await proxy.client.get("/ready")
    assert "Redis can't be reached" in ready.json()["store"]
    redis.start()

    async def is_counted() -> bool:
        """What was spent meanwhile; what Redis itself has forgotten is gone."""
        return await store_of(proxy) == "ok" and await used(proxy) == 16 * USED

    await until(is_counted)
    await ask(proxy, AGENT)
    assert await used(proxy) == 17 * USED


async def test_a_hard_stop_wants_the_truth(start_proxy: StartProxy, redis: RedisServer) -> None:
    proxy = await start_proxy({**shared(redis), **HARD})
    proxy.upstream.always(lambda _: text_stream("Hello"))
    redis.kill()
    response = await ask(proxy, AGENT)
    assert (response.status_code, response.json()["error"]["scope"]) == (429, "store")
    assert proxy.upstream.calls == []


# How often an exchange asks Redis, as the server itself sees it (MONITOR)

HARD_STOP = {f"{BUDGET}.policy": "hard_stop"}
RETRIES = {f"{RULES}.max_retries": 3, f"{ESCALATION}.max_retries_before_escalate": 2}
HELLO = text_stream("Hello")


@asynccontextmanager
async def watched(redis: RedisServer, proxy: RunningProxy) -> AsyncIterator[list[str]]:
    """What comes in over the network meanwhile: our scripts by their names, else the command."""
    store = proxy.services.store
    assert isinstance(store, RedisStore)
    names = {script.sha: name for name, script in store._link.scripts.items()}
    seen: list[str] = []
    async with Redis.from_url(redis.url) as client, client.monitor() as monitor:
        yield seen
        assert redis.ask("ECHO", "enough") is not None
        while (told := await monitor.next_command())["command"] != "ECHO enough":
            if told["client_type"] != "lua":
                words = told["command"].split()
                seen.append(names[words[1]] if words[0] == "EVALSHA" else words[0])


async def known_to(redis: RedisServer, proxy: RunningProxy) -> None:
    """A server that was started anew is sent each script's text once: not what is counted here."""
    store = proxy.services.store
    assert isinstance(store, RedisStore)
    async with Redis.from_url(redis.url) as client:
        for script in store._link.scripts.values():
            await client.script_load(script.script)


@pytest.mark.parametrize(
    ("replies", "changes", "asked"),
    [
        ([HELLO], {}, ["load", "write"]),
        ([HELLO], HARD_STOP, ["load", "reserve", "write"]),
        # The events of the bad call and of the recovery, and the record, come with the session.
        ([calling(BAD), calling(GOOD)], RETRIES, ["load", "write"]),
        # Each further attempt sets tokens aside anew, where a budget is to be exact.
        (
            [calling(BAD), calling(GOOD)],
            {**RETRIES, **HARD_STOP},
            ["load", "reserve", "write", "reserve", "write"],
        ),
    ],
    ids=["plain", "hard_stop", "retried", "retried under hard_stop"],
)
async def test_the_round_trips_of_an_exchange(
    start_proxy: StartProxy,
    redis: RedisServer,
    *,
    replies: list[Reply],
    changes: dict[str, object],
    asked: list[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(journal, "LINGER_SECONDS", 60.0)
    state = {"state.backend": "redis", "state.redis_url": redis.url}
    proxy = await start_proxy({**state, **changes})
    await known_to(redis, proxy)
    proxy.upstream.will(*replies)
    async with watched(redis, proxy) as seen:
        response = await ask(proxy, tools=TOOLS)
    assert response.headers["x-mlx-stack-attempts"] == str(len(replies))
    assert seen == asked
