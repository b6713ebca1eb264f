"""How often an exchange asks Redis, as the server itself sees it (``MONITOR``)."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from redis.asyncio import Redis

from mlx_stack_proxy.state.redis import RedisStore
from tests.server.asking import ask
from tests.server.calling import BAD, GOOD, RULES, TOOLS, calling
from tests.server.climbing import DEAD, ESCALATION, by_model
from tests.server.conftest import StartProxy
from tests.server.counting import BUDGET
from tests.support.redis_server import RedisServer
from tests.support.replies import text_stream
from tests.support.running_proxy import RunningProxy
from tests.support.scripted_server import Reply, ScriptedServer

HARD_STOP = {f"{BUDGET}.policy": "hard_stop"}
RETRIES = {f"{RULES}.max_retries": 3, f"{ESCALATION}.max_retries_before_escalate": 2}
CLIMBS = {f"{ESCALATION}.chain": ["fast", "standard"]}
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
        # Once for the bad call, once for the recovery.
        (
            [calling(BAD), calling(GOOD)],
            RETRIES,
            ["load", "write", "write", "write"],
        ),
        # Each further attempt sets tokens aside anew, where a budget is to be exact.
        (
            [calling(BAD), calling(GOOD)],
            {**RETRIES, **HARD_STOP},
            ["load", "reserve", "write", "reserve", "write", "write", "write"],
        ),
    ],
    ids=["plain", "hard_stop", "retried", "retried under hard_stop"],
)
async def test_the_round_trips_of_an_exchange(
    upstream: ScriptedServer,
    start_proxy: StartProxy,
    redis: RedisServer,
    *,
    replies: list[Reply],
    changes: dict[str, object],
    asked: list[str],
) -> None:
    state = {"state.backend": "redis", "state.redis_url": redis.url}
    proxy = await start_proxy({**state, **changes})
    await known_to(redis, proxy)
    upstream.will(*replies)
    async with watched(redis, proxy) as seen:
        response = await ask(proxy, tools=TOOLS)
    assert response.headers["x-mlx-stack-attempts"] == str(len(replies))
    assert sorted(seen) == sorted(asked)  # nobody waits for events: they may come in between


async def test_nobody_waits_for_what_a_failing_tier_gives_to_write(
    upstream: ScriptedServer, start_proxy: StartProxy, redis: RedisServer
) -> None:
    state = {"state.backend": "redis", "state.redis_url": redis.url}
    proxy = await start_proxy({**state, **RETRIES, **CLIMBS})
    await known_to(redis, proxy)
    upstream.models = ("fast", "standard")
    upstream.always(by_model(fast=DEAD))
    async with watched(redis, proxy) as seen:
        response = await ask(proxy)
    assert response.headers["x-mlx-stack-attempts"] == "4"
    assert seen.count("load") == 1
    # At its end; the breaker's three failures with their events, and the outage, as it goes on.
    assert 2 <= seen.count("write") <= 5
    assert len(seen) == 1 + seen.count("write")
