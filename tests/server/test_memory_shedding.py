"""Critical memory: one call at a time, through the whole proxy."""

from __future__ import annotations

import asyncio

from tests.server.asking import KEEP_ALIVE, ask, checked_error
from tests.server.climbing import asked, by_model
from tests.server.conftest import StartProxy
from tests.server.counting import session
from tests.server.polling import until_metric
from tests.server.pressing import (
    CRITICAL,
    HEADER,
    NORMAL,
    Gate,
    start,
)
from tests.support.forced_memory import ForcedMemory
from tests.support.replies import litellm_error
from tests.support.scripted_server import ScriptedServer


async def test_what_runs_when_it_gets_critical_runs_on_and_the_rest_waits_for_all_of_it(
    upstream: ScriptedServer, start_proxy: StartProxy, memory: ForcedMemory
) -> None:
    proxy = await start(upstream, start_proxy, memory)
    gate = Gate(upstream)
    tasks = [asyncio.create_task(ask(proxy, session(str(number)))) for number in range(2)]
    for _ in tasks:
        await gate.next_call()
    tasks += [asyncio.create_task(ask(proxy, session("waits"))) for _ in range(2)]
    await until_metric(proxy, "mlx_stack_queue_depth", 2, tier="fast")
    await memory.shows(CRITICAL)
    gate.gates[0].set()
    await tasks[0]
    await until_metric(proxy, "mlx_stack_in_flight", 1, tier="fast")
    assert len(gate.gates) == 2, "the other one still runs"
    gate.gates[1].set()
    for number in (2, 3):
        await gate.next_call()
        assert gate.running == 1
        gate.gates[number].set()
    assert [(await task).status_code for task in tasks] == [200] * 4


async def test_who_waits_too_long_is_told_why_and_goes_nowhere_else(
    upstream: ScriptedServer, start_proxy: StartProxy, memory: ForcedMemory
) -> None:
    more = {"tiers.fast.queue_timeout": 0.2}
    proxy = await start(upstream, start_proxy, memory, **more)
    gate = Gate(upstream)
    await memory.shows(CRITICAL)
    first = asyncio.create_task(ask(proxy, model="standard"))
    await gate.next_call()
    response = await ask(proxy)
    error = checked_error(response, 503, "memory_pressure")
    assert "memory" in error["message"]
    assert int(response.headers["retry-after"]) >= 1
    assert response.headers[HEADER] == "critical"
    assert response.headers["x-mlx-stack-attempts"] == "0"
    assert asked(upstream) == ["standard"]
    gate.gates[0].set()
    assert (await first).status_code == 200
    assert (await proxy.client.get("/mlx-stack/status")).json()["tiers"]["fast"]["failures"] == 0


async def test_a_stream_that_waits_gets_signs_of_life_and_then_the_error(
    upstream: ScriptedServer, start_proxy: StartProxy, memory: ForcedMemory
) -> None:
    more = {"tiers.fast.queue_timeout": 0.5, "stream.keepalive_seconds": 0.1}
    proxy = await start(upstream, start_proxy, memory, **more)
    gate = Gate(upstream)
    await memory.shows(CRITICAL)
    first = asyncio.create_task(ask(proxy, model="standard"))
    await gate.next_call()
    response = await ask(proxy, stream=True)
    assert response.status_code == 200
    assert response.content.startswith(KEEP_ALIVE)
    assert b'"type":"memory_pressure"' in response.content
    assert response.content.endswith(b"data: [DONE]\n\n")
    gate.gates[0].set()
    await first


async def test_a_retry_waits_its_turn_like_any_other(
    upstream: ScriptedServer, start_proxy: StartProxy, memory: ForcedMemory
) -> None:
    """An exchange gives its place back between two attempts; the next tier's is one of the same."""
    proxy = await start(upstream, start_proxy, memory)
    await memory.shows(CRITICAL)
    upstream.always(by_model(fast=litellm_error(500, "broken")))
    response = await ask(proxy)
    assert asked(upstream) == ["fast", "standard"]
    assert response.headers["x-mlx-stack-tier"] == "standard"


async def test_recovery_lets_all_go(
    upstream: ScriptedServer, start_proxy: StartProxy, memory: ForcedMemory
) -> None:
    proxy = await start(upstream, start_proxy, memory)
    gate = Gate(upstream)
    await memory.shows(CRITICAL)
    tasks = [asyncio.create_task(ask(proxy, session(str(number)))) for number in range(2)]
    await gate.next_call()
    await until_metric(proxy, "mlx_stack_queue_depth", 1, tier="fast")
    await memory.shows(NORMAL, after=30)
    await gate.next_call()
    assert gate.running == 2
    gate.open()
    assert [(await task).status_code for task in tasks] == [200, 200]


async def test_ignore_goes_on(upstream: ScriptedServer, start_proxy: StartProxy) -> None:
    memory = ForcedMemory(critical_action="ignore")
    proxy = await start(upstream, start_proxy, memory)
    gate = Gate(upstream)
    await memory.shows(CRITICAL)
    tasks = [asyncio.create_task(ask(proxy, session(str(number)))) for number in range(2)]
    for _ in tasks:
        await gate.next_call()
    assert gate.running == 2
    gate.open()
    assert [(await task).headers[HEADER] for task in tasks] == ["critical"] * 2
