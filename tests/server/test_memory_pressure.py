"""Memory pressure through the whole proxy, its level forced through the reader."""

from __future__ import annotations

import asyncio
from typing import Any

import httpx
import pytest

from tests.server.asking import CHAT, ask, body, checked_error
from tests.server.calling import note_of
from tests.server.climbing import asked, by_model
from tests.server.conftest import StartProxy
from tests.server.counting import events_of, session
from tests.server.polling import until_metric
from tests.server.pressing import (
    COMPLEX,
    CONSENT,
    CRITICAL,
    HEADER,
    NORMAL,
    WARNING,
    Gate,
    gauge,
    start,
)
from tests.support.forced_memory import HOUR, ForcedMemory
from tests.support.replies import litellm_error
from tests.support.scripted_server import Reply, ScriptedServer
from tests.support.waiting import until

# The full course


async def test_the_full_course(
    upstream: ScriptedServer, start_proxy: StartProxy, memory: ForcedMemory
) -> None:
    """Warning, header, sustained, the cloud tier, critical, shed, recovery step by step."""
    proxy = await start(upstream, start_proxy, memory)

    async def complex_start() -> httpx.Response:
        return await ask(proxy, model="auto", **COMPLEX)

    # All is well
    response = await complex_start()
    assert response.headers["x-mlx-stack-tier"] == "fast"
    for quiet in (response, await ask(proxy, stream=True), await proxy.client.get("/health")):
        assert HEADER not in quiet.headers
    assert await gauge(proxy) == 0
    # Warning: a header, and nothing else
    await memory.shows(WARNING)
    response = await complex_start()
    assert (response.headers[HEADER], response.headers["x-mlx-stack-tier"]) == ("warning", "fast")
    assert "x-mlx-stack-escalation-reason" not in response.headers
    assert await gauge(proxy) == 1
    # Sustained: complex requests start in the cloud, the others don't
    await memory.shows(WARNING, after=60)
    response = await complex_start()
    assert response.headers["x-mlx-stack-tier"] == "premium"
    assert response.headers["x-mlx-stack-escalated-from"] == "fast"
    assert response.headers["x-mlx-stack-escalation-reason"] == "memory_pressure"
    assert (await ask(proxy)).headers["x-mlx-stack-tier"] == "fast"
    # Critical: one local request at a time, while the cloud goes on
    await memory.shows(CRITICAL, after=5)
    assert await gauge(proxy) == 2
    gate = Gate(upstream)
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
    upstream.always(by_model())
    await memory.shows(NORMAL, after=29)
    assert (await ask(proxy)).headers[HEADER] == "critical"
    await memory.shows(NORMAL, after=1)
    assert (await complex_start()).headers[HEADER] == "warning"
    await memory.shows(NORMAL, after=30)
    response = await complex_start()
    assert HEADER not in response.headers
    assert response.headers["x-mlx-stack-tier"] == "fast"
    assert await gauge(proxy) == 0
    assert [
        (one["from"], one["to"], one["cause"]) for one in await events_of(proxy, "pressure_changed")
    ] == [
        ("normal", "warning", "system"),
        ("warning", "critical", "system"),
        ("critical", "warning", "system"),
        ("warning", "normal", "system"),
    ]


# The header


async def test_every_response_has_the_header(
    upstream: ScriptedServer, start_proxy: StartProxy, memory: ForcedMemory
) -> None:
    proxy = await start(upstream, start_proxy, memory)
    upstream.routes["GET", "/v1/embeddings"] = Reply.json({"data": []})
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
    upstream.always(litellm_error(400, "no such thing"))
    responses["client's fault"] = await ask(proxy)
    upstream.always(litellm_error(500, "broken"))
    responses["all failed"] = await ask(proxy)
    for what, response in responses.items():
        assert response.headers.get_list(HEADER) == ["critical"], what
    reader, writer = await proxy.raw(b"GET / HTTP/1.1\r\n: no name\r\n\r\n")
    assert b"x-mlx-stack-memory-pressure: critical\r\n" in await reader.read()
    writer.close()


async def test_a_stream_that_it_came_over_says_so_at_its_end(
    upstream: ScriptedServer, start_proxy: StartProxy, memory: ForcedMemory
) -> None:
    proxy = await start(upstream, start_proxy, memory)
    gate = Gate(upstream)
    request = proxy.client.build_request("POST", CHAT, json=body(stream=True))
    response = await proxy.client.send(request, stream=True)
    assert HEADER not in response.headers
    await memory.shows(WARNING)
    gate.gates[0].set()
    await response.aread()
    assert note_of(response)["memory_pressure"] == "warning"


# The start


@pytest.mark.parametrize(
    "case",
    [
        ({"X-MLX-Stack-Cloud": "off"}, {}, {}),
        ({"X-MLX-Stack-Escalation": "off"}, {}, {}),
        ({"X-MLX-Stack-Tier": "fast"}, {}, {}),
        ({}, {"tools": []}, {}),
        ({}, {}, {"cloud_fallback": None}),
        ({}, {}, {"cloud": False}),
        ({}, {}, {"cloud_fallback": {**CONSENT, "enabled": False}}),
        ({}, {}, {"cloud_fallback": {**CONSENT, "max_tokens_per_hour": 10_000}}),
    ],
    ids=[
        "cloud off",
        "escalation off",
        "tier named",
        "no tools",
        "no consent",
        "no cloud at all",
        "consent taken back",
        "the cap is used up",
    ],
)
async def test_where_nothing_may_leave_nothing_changes_but_the_header(
    case: tuple[dict[str, str], dict[str, Any], dict[str, Any]],
    upstream: ScriptedServer,
    start_proxy: StartProxy,
    memory: ForcedMemory,
) -> None:
    headers, more, escalation = case
    proxy = await start(upstream, start_proxy, memory, escalation)
    await memory.shows(WARNING)
    await memory.shows(WARNING, after=60)
    response = await ask(proxy, headers, **{**COMPLEX, **more})
    assert response.status_code == 200
    assert asked(upstream) == ["fast"]
    assert response.headers[HEADER] == "warning"
    assert "x-mlx-stack-escalated-from" not in response.headers


async def test_what_was_set_aside_for_no_call_is_given_back(
    upstream: ScriptedServer, start_proxy: StartProxy, memory: ForcedMemory
) -> None:
    """The cap has room for two. One runs, and who waits in vain behind it takes no room with it."""
    capped = {"cloud_fallback": {**CONSENT, "max_tokens_per_hour": 50_000}}
    more = {"tiers.premium.max_concurrency": 1, "tiers.premium.queue_timeout": 0.2}
    proxy = await start(upstream, start_proxy, memory, capped, **more)
    await memory.shows(WARNING)
    await memory.shows(WARNING, after=60)
    gate = Gate(upstream)
    first = asyncio.create_task(ask(proxy, **COMPLEX))
    assert await gate.next_call() == "premium"
    for _ in range(3):
        checked_error(await ask(proxy, **COMPLEX), 503, "tier_busy")
    gate.open()
    assert (await first).status_code == 200


# What is read


async def test_ready_and_status_tell_it(
    upstream: ScriptedServer, start_proxy: StartProxy, memory: ForcedMemory
) -> None:
    proxy = await start(upstream, start_proxy, memory)
    await memory.shows(WARNING)
    await memory.shows(WARNING, after=7)
    for path in ("/ready", "/mlx-stack/status"):
        assert (await proxy.client.get(path)).json()["memory_pressure"] == {
            "level": "warning",
            "cause": "system",
            "seconds": 7.0,
            "sustained": False,
            "source": "forced",
            "trouble": None,
        }


async def test_a_reader_that_fails_breaks_nothing(
    upstream: ScriptedServer, start_proxy: StartProxy, memory: ForcedMemory
) -> None:
    proxy = await start(upstream, start_proxy, memory)
    await until(lambda: memory.probe.reading)  # the first look, which is still well
    memory.error = OSError("it broke")
    await memory.shows(CRITICAL, after=3 * HOUR)
    response = await ask(proxy)
    assert response.status_code == 200
    assert HEADER not in response.headers
    ready = await proxy.client.get("/ready")
    assert ready.status_code == 200
    assert ready.json()["memory_pressure"]["trouble"] == "OSError: it broke"


async def test_without_a_source_the_metric_is_absent(
    upstream: ScriptedServer, start_proxy: StartProxy
) -> None:
    proxy = await start_proxy({"reliability.memory_pressure": {"source": "off"}})
    assert "mlx_stack_memory_pressure" not in (await proxy.client.get("/metrics")).text
    assert (await proxy.client.get("/ready")).json()["memory_pressure"]["source"] is None


async def test_a_store_that_fails_does_not_stop_the_shedding(
    upstream: ScriptedServer,
    start_proxy: StartProxy,
    memory: ForcedMemory,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    proxy = await start(upstream, start_proxy, memory)

    async def fails(change: Any, now: float) -> None:
        raise RuntimeError("no")

    monkeypatch.setattr(proxy.services.store, "write", fails)
    await memory.shows(CRITICAL)
    gate = Gate(upstream)
    tasks = [asyncio.create_task(ask(proxy, session(str(number)))) for number in range(2)]
    await gate.next_call()
    await until_metric(proxy, "mlx_stack_queue_depth", 1, tier="fast")
    for number in range(2):
        gate.gates[number].set()
        if not number:
            await gate.next_call()
    assert [(await task).status_code for task in tasks] == [200, 200]
