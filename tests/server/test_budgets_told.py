"""What is said of budgets: events, refusals and when there is room again, estimates."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from mlx_stack_proxy.token_budget.reservation import Reservation
from tests.server.asking import ask, checked_error
from tests.server.conftest import StartProxy
from tests.server.counting import AGENT, BUDGET, OTHER, USED, events_of, hard, held, session_of
from tests.server.polling import until_metric
from tests.support.replies import text_stream
from tests.support.scripted_server import ScriptedServer


async def test_of_many_at_once_one_event_for_each_threshold(
    upstream: ScriptedServer, start_proxy: StartProxy
) -> None:
    proxy = await start_proxy({f"{BUDGET}.per_hour": 10 * USED, "tiers.fast.max_concurrency": 30})
    go_on = asyncio.Event()
    upstream.always(lambda _: held(go_on))
    running = [
        asyncio.create_task(ask(proxy, {"X-MLX-Stack-Session": f"agent-{n:04d}"}))
        for n in range(20)
    ]
    for _ in running:
        await upstream.next_call()
    go_on.set()
    await asyncio.gather(*running)
    assert len(await events_of(proxy, "budget_warning")) == 1
    assert len(await events_of(proxy, "budget_exceeded")) == 1


async def test_refusals_are_kept_once_a_minute_of_a_session(
    upstream: ScriptedServer, start_proxy: StartProxy
) -> None:
    proxy = await start_proxy(hard(per_session=USED))
    upstream.always(lambda _: text_stream("Hello"))
    await ask(proxy, AGENT)
    before = len(await events_of(proxy, "budget_exceeded"))
    for _ in range(5):
        checked_error(await ask(proxy, AGENT), 429, "budget_exceeded")
    refused = (await events_of(proxy, "budget_exceeded"))[before:]
    assert refused == [{"scope": "session", "used": USED, "limit": USED}]
    assert (await session_of(proxy))["turns"] == 1, "to be refused is no use of a session"


async def test_when_there_is_room_again(upstream: ScriptedServer, start_proxy: StartProxy) -> None:
    now = 1_780_000_000.0 // 60 * 60
    clock = {"now": now}
    proxy = await start_proxy(hard(per_hour=2 * USED), wall_clock=lambda: clock["now"])
    upstream.always(lambda _: text_stream("Hello"))
    await ask(proxy, AGENT)
    clock["now"] = now + 600
    await ask(proxy, OTHER)
    clock["now"] = now + 1200
    refused = await ask(proxy, AGENT)
    error = checked_error(refused, 429, "budget_exceeded")
    assert error["retry_after"] == 3600 - 1200, "the first one's minute leaves the hour"
    assert refused.headers["retry-after"] == "2400"
    clock["now"] += error["retry_after"]
    assert (await ask(proxy, AGENT)).status_code == 200


async def test_when_a_session_begins_anew(
    upstream: ScriptedServer, start_proxy: StartProxy
) -> None:
    clock = {"now": 1_780_000_000.0}
    limits = hard(per_session=USED, session_ttl_seconds=1000)
    proxy = await start_proxy(limits, wall_clock=lambda: clock["now"])
    upstream.always(lambda _: text_stream("Hello"))
    await ask(proxy, AGENT)
    for _ in range(3):  # to come too early does not put it off
        clock["now"] += 300
        error = checked_error(await ask(proxy, AGENT), 429, "budget_exceeded")
    assert error["retry_after"] == 100
    clock["now"] += 101
    assert (await ask(proxy, AGENT)).status_code == 200


async def test_a_bypassed_budget_counts_and_refuses_nobody(
    upstream: ScriptedServer, start_proxy: StartProxy
) -> None:
    proxy = await start_proxy({**hard(per_session=USED), "server.allow_bypass": True})
    upstream.always(lambda _: text_stream("Hello"))
    past = {**AGENT, "X-MLX-Stack-Bypass": "budget"}
    assert [(await ask(proxy, past)).status_code for _ in range(3)] == [200] * 3
    assert (await session_of(proxy))["used"] == 3 * USED
    checked_error(await ask(proxy, AGENT), 429, "budget_exceeded")


async def test_what_is_estimated_is_marked_as_such(
    upstream: ScriptedServer, start_proxy: StartProxy
) -> None:
    proxy = await start_proxy()
    upstream.will(text_stream("Hello"), text_stream("Hello", usage=False))
    await ask(proxy, AGENT)
    assert (await session_of(proxy))["estimated"] == 0
    await ask(proxy, AGENT)
    found = await session_of(proxy)
    assert found["used"] - USED == found["estimated"] > 0


async def test_a_fault_in_the_books_keeps_no_reply_back(
    upstream: ScriptedServer, start_proxy: StartProxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*args: Any) -> Any:
        raise ZeroDivisionError

    proxy = await start_proxy()
    monkeypatch.setattr(Reservation, "tell", broken)
    upstream.always(lambda _: text_stream("Hello"))
    assert (await ask(proxy, AGENT)).status_code == 200
    assert (await session_of(proxy))["used"] == USED
    await until_metric(proxy, "mlx_stack_stage_faults_total", 1, stage="books")
