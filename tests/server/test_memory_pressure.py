"""Memory pressure through the whole proxy, its level forced through the reader."""

from __future__ import annotations

import asyncio
from typing import Any

import httpx
import pytest

from mlx_stack_proxy.memory_pressure.pressure import Level
from tests.server.asking import CHAT, ask, body, checked_error
from tests.server.calling import TOOLS, note_of
from tests.server.climbing import asked, by_model
from tests.server.conftest import StartProxy
from tests.server.counting import events_of, session
from tests.server.polling import metric, until_metric
from tests.server.pressing import Gate
from tests.support.forced_memory import ForcedMemory
from tests.support.replies import litellm_error
from tests.support.running_proxy import RunningProxy
from tests.support.scripted_server import Reply

HEADER = "x-mlx-stack-memory-pressure"
LEVEL = "mlx_stack_memory_pressure"
NORMAL, WARNING, CRITICAL = Level.NORMAL, Level.WARNING, Level.CRITICAL
COMPLEX = {
    "messages": [{"role": "user", "content": "What did the quokka see? " * 1000}],
    "tools": TOOLS,
}
CONSENT = {"model": "cloud/large"}
TIERS = ("fast", "standard", "premium")


@pytest.fixture
def pressed(start_proxy: StartProxy, memory: ForcedMemory) -> StartProxy:
    """Two local tiers and a cloud tier with consent; a queue that nobody gives up."""
    rules = {"chain": list(TIERS), "max_retries_before_escalate": 0}
    local = {"max_concurrency": 2, "queue_timeout": 60}
    tiers = {name: {"model": name, **local} for name in TIERS[:2]}
    tiers["premium"] = {"model": "premium", "local": False}

    async def started(
        consent: dict[str, Any] = CONSENT, memory: ForcedMemory = memory, **more: Any
    ) -> RunningProxy:
        escalation = {**rules, "cloud_fallback": consent}
        changes = {"tiers": tiers, "reliability.escalation": escalation, **more}
        proxy = await start_proxy(changes, memory=memory)
        proxy.upstream.models = TIERS
        proxy.upstream.always(by_model())
        return proxy

    return started


async def test_the_full_course(pressed: StartProxy, memory: ForcedMemory) -> None:
    """Warning, header, sustained, the cloud tier, critical, shed, recovery step by step."""
    proxy = await pressed()

    async def complex_start() -> httpx.Response:
        return await ask(proxy, model="auto", **COMPLEX)

    # All is well
    response = await complex_start()
    assert response.headers["x-mlx-stack-tier"] == "fast"
    for quiet in (response, await ask(proxy, stream=True), await proxy.client.get("/health")):
        assert HEADER not in quiet.headers
    assert await metric(proxy, LEVEL) == 0
    # Warning: a header, and nothing else
    await memory.shows(WARNING)
    response = await complex_start()
    assert (response.headers[HEADER], response.headers["x-mlx-stack-tier"]) == ("warning", "fast")
    assert "x-mlx-stack-escalation-reason" not in response.headers
    assert await metric(proxy, LEVEL) == 1
    # Sustained: complex requests start in the cloud, the others don't
    await memory.shows(WARNING, after=60)
    response = await complex_start()
    assert response.headers["x-mlx-stack-tier"] == "premium"
    assert response.headers["x-mlx-stack-escalated-from"] == "fast"
    assert response.headers["x-mlx-stack-escalation-reason"] == "memory_pressure"
    assert (await ask(proxy)).headers["x-mlx-stack-tier"] == "fast"
    for path in ("/ready", "/mlx-stack/status"):
        assert (await proxy.client.get(path)).json()["memory_pressure"] == {
            "level": "warning",
            "cause": "system",
            "seconds": 60.0,
            "sustained": True,
            "source": "forced",
            "trouble": None,
        }
    # Critical: one local request at a time, while the cloud goes on
    await memory.shows(CRITICAL, after=5)
    assert await metric(proxy, LEVEL) == 2
    gate = Gate(proxy.upstream)
    first = asyncio.create_task(ask(proxy, session("a")))
    assert await gate.next_call() == "fast"
    second = asyncio.create_task(ask(proxy, session("b"), model="standard"))
    await until_metric(proxy, "mlx_stack_queue_depth", 1, tier="standard")
    assert gate.running == 1
    away = asyncio.create_task(complex_start())
    assert await gate.next_call() == "premium"
    gate.gates[1].set()
    assert (await away).headers[HEADER] == "critical"
    gate.gates[0].set()
    assert await gate.next_call() == "standard"
    gate.gates[2].set()
    for task in (first, second):
        assert (await task).status_code == 200
    # Recovery, a step at a time
    proxy.upstream.always(by_model())
    await memory.shows(NORMAL, after=29)
    assert (await ask(proxy)).headers[HEADER] == "critical"
    await memory.shows(NORMAL, after=1)
    assert (await complex_start()).headers[HEADER] == "warning"
    await memory.shows(NORMAL, after=30)
    response = await complex_start()
    assert HEADER not in response.headers
    assert response.headers["x-mlx-stack-tier"] == "fast"
    assert await metric(proxy, LEVEL) == 0
    assert [
        (one["from"], one["to"], one["cause"]) for one in await events_of(proxy, "pressure_changed")
    ] == [
        ("normal", "warning", "system"),
        ("warning", "critical", "system"),
        ("critical", "warning", "system"),
        ("warning", "normal", "system"),
    ]


# The header


async def test_every_response_has_the_header(pressed: StartProxy, memory: ForcedMemory) -> None:
    proxy = await pressed()
    proxy.upstream.routes["GET", "/v1/embeddings"] = Reply.json({"data": []})
    await memory.shows(CRITICAL)
    client = proxy.client
    responses = {
        "chat": await ask(proxy),
        "stream": await ask(proxy, stream=True),
        "bad request": await client.post(CHAT, json={}),
        "wrong method": await client.get(CHAT),
        "passthrough": await client.get("/v1/embeddings"),
        "models": await client.get("/v1/models"),
        "health": await client.get("/health"),
        "ready": await client.get("/ready"),
        "metrics": await client.get("/metrics"),
        "status": await client.get("/mlx-stack/status"),
        "nowhere": await client.get("/nowhere"),
        "foreign page": await client.get("/health", headers={"Origin": "http://evil.example"}),
    }
    proxy.upstream.always(litellm_error(400, "no such thing"))
    responses["client's fault"] = await ask(proxy)
    proxy.upstream.always(litellm_error(500, "broken"))
    responses["all failed"] = await ask(proxy)
    for what, response in responses.items():
        assert response.headers.get_list(HEADER) == ["critical"], what
    reader, writer = await proxy.raw(b"GET / HTTP/1.1\r\n: no name\r\n\r\n")
    assert b"x-mlx-stack-memory-pressure: critical\r\n" in await reader.read()
    writer.close()


async def test_a_stream_that_it_came_over_says_so_at_its_end(
    pressed: StartProxy, memory: ForcedMemory
) -> None:
    proxy = await pressed()
    gate = Gate(proxy.upstream)
    request = proxy.client.build_request("POST", CHAT, json=body(stream=True))
    response = await proxy.client.send(request, stream=True)
    assert HEADER not in response.headers
    await memory.shows(WARNING)
    gate.gates[0].set()
    await response.aread()
    assert note_of(response)["memory_pressure"] == "warning"


# The cloud


async def test_what_was_set_aside_for_no_call_is_given_back(
    pressed: StartProxy, memory: ForcedMemory
) -> None:
    """The cap has room for two. One runs, and who waits in vain behind it takes no room with it."""
    more = {"tiers.premium.max_concurrency": 1, "tiers.premium.queue_timeout": 0.2}
    proxy = await pressed({**CONSENT, "max_tokens_per_hour": 50_000}, **more)
    await memory.shows(WARNING)
    await memory.shows(WARNING, after=60)
    gate = Gate(proxy.upstream)
    first = asyncio.create_task(ask(proxy, **COMPLEX))
    assert await gate.next_call() == "premium"
    for _ in range(3):
        checked_error(await ask(proxy, **COMPLEX), 503, "tier_busy")
    gate.open()
    assert (await first).status_code == 200


# Critical memory: one call at a time


async def test_who_waits_too_long_is_told_why_and_goes_nowhere_else(
    pressed: StartProxy, memory: ForcedMemory
) -> None:
    proxy = await pressed(**{"tiers.fast.queue_timeout": 0.2})
    gate = Gate(proxy.upstream)
    await memory.shows(CRITICAL)
    first = asyncio.create_task(ask(proxy, model="standard"))
    await gate.next_call()
    response = await ask(proxy)
    error = checked_error(response, 503, "memory_pressure")
    assert "memory" in error["message"]
    assert int(response.headers["retry-after"]) >= 1
    assert response.headers[HEADER] == "critical"
    assert response.headers["x-mlx-stack-attempts"] == "0"
    assert asked(proxy.upstream) == ["standard"]
    gate.gates[0].set()
    assert (await first).status_code == 200
    assert (await proxy.client.get("/mlx-stack/status")).json()["tiers"]["fast"]["failures"] == 0


async def test_ignore_goes_on(pressed: StartProxy) -> None:
    memory = ForcedMemory(critical_action="ignore")
    proxy = await pressed(memory=memory)
    gate = Gate(proxy.upstream)
    await memory.shows(CRITICAL)
    tasks = [asyncio.create_task(ask(proxy, session(str(number)))) for number in range(2)]
    for _ in tasks:
        await gate.next_call()
    assert gate.running == 2
    gate.open()
    assert [(await task).headers[HEADER] for task in tasks] == ["critical"] * 2
