"""What proxies keep, with real files and a real Redis: counted before the client knows, shared."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from tests.server.asking import ask
from tests.server.conftest import StartProxy
from tests.server.counting import AGENT, BUDGET, NO_LOOPS, USED
from tests.state.reading import contents
from tests.support.redis_server import RedisServer
from tests.support.replies import text_stream
from tests.support.running_proxy import RunningProxy
from tests.support.scripted_server import ScriptedServer

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
    found = contents(path)
    assert found is not None
    return sum(sum(purse.used.values()) for _, purse in found["purses"])


@pytest.mark.parametrize("stream", [True, False])
async def test_what_a_client_has_seen_finished_is_on_the_disk(
    upstream: ScriptedServer, start_proxy: StartProxy, tmp_path: Path, stream: bool
) -> None:
    path = tmp_path / "state.db"
    proxy = await start_proxy({"state.backend": "sqlite", "state.path": str(path), **NO_LOOPS})
    upstream.always(lambda _: text_stream("Hello"))
    for number in range(1, 6):
        response = await ask(proxy, AGENT, stream=stream)
        assert response.status_code == 200
        assert tokens_on_disk(path) == number * USED
    assert await store_of(proxy) == "ok"


async def test_two_proxies_share_one_budget(
    upstream: ScriptedServer, start_proxy: StartProxy, redis: RedisServer
) -> None:
    rules = {**HARD, f"{BUDGET}.per_session": 20 * USED, f"{BUDGET}.max_output_tokens": 20}
    proxies = [await start_proxy({**shared(redis), **rules}) for _ in range(2)]
    upstream.always(lambda _: text_stream("Hello"))
    responses = await asyncio.gather(*(ask(proxies[n % 2], AGENT) for n in range(64)))
    statuses = [response.status_code for response in responses]
    assert set(statuses) == {200, 429}
    # Each reply that came is counted once, none beyond the budget, and both proxies know.
    assert statuses.count(200) <= 20
    for proxy in proxies:
        assert await used(proxy) == statuses.count(200) * USED


async def test_redis_goes_and_comes_back(
    upstream: ScriptedServer, start_proxy: StartProxy, redis: RedisServer
) -> None:
    proxy = await start_proxy(shared(redis))
    upstream.always(lambda _: text_stream("Hello"))
    await ask(proxy, AGENT)
    redis.kill()
    responses = await asyncio.gather(*(ask(proxy, AGENT) for _ in range(16)))
    assert [response.status_code for response in responses] == [200] * 16
    ready = await proxy.client.get("/ready")
    assert "Redis can't be reached" in ready.json()["store"]
    redis.start()
    async with asyncio.timeout(20):
        while await store_of(proxy) != "ok":  # noqa: ASYNC110
            await asyncio.sleep(0.01)
    # What was spent meanwhile is counted now; what Redis itself has forgotten is gone.
    async with asyncio.timeout(20):
        while await used(proxy) != 16 * USED:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
    await ask(proxy, AGENT)
    assert await used(proxy) == 17 * USED


async def test_a_hard_stop_wants_the_truth(
    upstream: ScriptedServer, start_proxy: StartProxy, redis: RedisServer
) -> None:
    proxy = await start_proxy({**shared(redis), **HARD})
    upstream.always(lambda _: text_stream("Hello"))
    redis.kill()
    response = await ask(proxy, AGENT)
    assert (response.status_code, response.json()["error"]["scope"]) == (429, "store")
    assert upstream.calls == []
