"""A store that fails: an event, a line of the report, and what memory has meanwhile."""

from __future__ import annotations

import resource
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.server.asking import ask
from tests.server.calling import BAD, RULES, TOOLS, calling
from tests.server.conftest import StartProxy
from tests.server.counting import AGENT, NO_LOOPS, hard
from tests.support.redis_server import RedisServer
from tests.support.replies import text_stream
from tests.support.running_proxy import RunningProxy
from tests.support.scripted_server import ScriptedServer
from tests.support.waiting import until

pytestmark = pytest.mark.usefixtures("redis_asked_again_soon")


def size_of_log(path: Path) -> int:
    return Path(f"{path}-wal").stat().st_size


async def get(proxy: RunningProxy, path: str, **query: Any) -> Any:
    answer = await proxy.client.get(f"/mlx-stack/{path}", params=query)
    assert answer.status_code == 200, answer.text
    return answer.json()


def said(report: Any) -> str:
    return "\n".join(line for part in report["said"] for line in part["lines"])


async def test_it_shows_what_memory_has_and_tells_when_it_is_over(
    start_proxy: StartProxy, redis: RedisServer
) -> None:
    tries = {f"{RULES}.max_retries": 1, "reliability.escalation.chain": ["fast"]}
    kept = {"state.backend": "redis", "state.redis_url": redis.url, **NO_LOOPS, **tries}
    proxy = await start_proxy(kept)
    proxy.upstream.will(text_stream("Hello"), calling(BAD), calling(BAD))
    await ask(proxy, AGENT)
    redis.kill()
    failed = await ask(proxy, AGENT, tools=TOOLS)
    assert failed.status_code == 422

    report = await get(proxy, "report")
    assert "Redis can't be reached" in report["store"]
    assert said(report).startswith("The store is failing:")
    assert report["totals"]["requests"] == 2 and report["parts"] == {"right": 1, "failed": 1}
    events = await get(proxy, "events")
    assert events["store"] != "ok"
    assert {"store_down", "exhausted"} <= {event["kind"] for event in events["events"]}
    exchange = await get(proxy, "exchanges/last")
    assert exchange["request_id"] == failed.headers["x-request-id"]
    assert "status 422" in exchange["why"]
    assert (await get(proxy, "status"))["day"]["totals"]["requests"] == 2

    redis.start()

    async def is_over() -> Any:
        return (await get(proxy, "events", kind="store_up"))["events"]

    (up,) = await until(is_over)
    assert up["detail"]["seconds"] >= 0
    report = await get(proxy, "report")
    assert report["store"] == "ok"
    assert [outage["what"] for outage in report["outages"]] == ["store"]
    assert "The store was unavailable from" in said(report)


async def test_a_request_that_is_refused_meanwhile_counts_once(
    upstream: ScriptedServer, start_proxy: StartProxy, redis: RedisServer
) -> None:
    proxy = await start_proxy(
        {**hard(per_hour=10_000), "state.backend": "redis", "state.redis_url": redis.url}
    )
    redis.kill()
    assert (await ask(proxy, AGENT)).status_code == 429
    report = await get(proxy, "report")
    assert report["store"] != "ok" and report["parts"] == {"refused": 1}


async def test_a_failure_shorter_than_a_request_is_an_event(proxy: RunningProxy) -> None:
    health = proxy.services.store.health
    health.begin("the disk takes over 5 s")
    health.begin("the disk is full")
    health.end()
    events = (await get(proxy, "events"))["events"]
    assert [event["kind"] for event in events][-2:] == ["store_down", "store_up"]
    assert events[-2]["detail"] == {"why": "the disk takes over 5 s"}


@pytest.fixture
def full_disk() -> Iterator[Callable[[int], None]]:
    """Files may not grow beyond so many bytes, in this process."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    yield lambda size: resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    resource.setrlimit(resource.RLIMIT_FSIZE, before)


async def test_a_full_disk_is_an_event_and_a_line_of_the_report(
    start_proxy: StartProxy,
    tmp_path: Path,
    full_disk: Callable[[int], None],
) -> None:
    path = tmp_path / "state.db"
    proxy = await start_proxy({"state.backend": "sqlite", "state.path": str(path), **NO_LOOPS})
    proxy.upstream.always(lambda _: text_stream("Hello"))
    await ask(proxy, AGENT)
    full_disk(size_of_log(path))

    async def fails() -> bool:
        await ask(proxy, AGENT)
        return proxy.services.store.health.sentence is not None

    await until(fails)
    report = await get(proxy, "report")
    assert report["store"] != "ok" and said(report).startswith("The store is failing:")
    asked = len(proxy.upstream.calls)
    assert report["totals"]["requests"] == asked
    full_disk(resource.RLIM_INFINITY)

    async def is_over() -> Any:
        return (await get(proxy, "events", kind="store_up"))["events"]

    await until(is_over)
    report = await get(proxy, "report")
    assert report["store"] == "ok" and report["totals"]["requests"] == asked
    assert "The store was unavailable from" in said(report)
