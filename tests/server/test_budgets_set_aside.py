"""What is set aside for whom, and until when."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from mlx_stack_proxy.state.store import Limit, StoreError
from mlx_stack_proxy.token_budget.reservation import Reservation
from tests.server.asking import ask, checked_error
from tests.server.conftest import StartProxy
from tests.server.counting import (
    AGENT,
    OTHER,
    USED,
    events_of,
    hard,
    held,
    session_of,
    waiting,
)
from tests.server.polling import until_metric
from tests.support.redis_server import RedisServer
from tests.support.replies import text_stream
from tests.support.running_proxy import RunningProxy
from tests.support.scripted_server import Reply, ScriptedServer, Wait
from tests.support.waiting import until

pytestmark = pytest.mark.usefixtures("redis_asked_again_soon")


def reserved(proxy: RunningProxy) -> int:
    """Over all sessions, those that nobody has finished an exchange in too."""
    store = proxy.services.store
    return int(store._set_aside("hour", proxy.services.wall_clock()))  # type: ignore[attr-defined]


# How much


async def test_a_prompt_within_the_window_and_all_choices_are_set_aside(
    start_proxy: StartProxy,
) -> None:
    """No more: sub-agents need not wait for each other long before the budget is used up."""
    proxy = await start_proxy({**hard(per_hour=100_000), "tiers.fast.context_window": 4000})
    go_on = asyncio.Event()
    proxy.upstream.will(held(go_on))
    messages = [{"role": "user", "content": "prose " * 2000}]
    running = asyncio.create_task(ask(proxy, AGENT, messages=messages, max_tokens=100, n=3))
    await proxy.upstream.next_call()
    assert reserved(proxy) == 4000 + 3 * 100
    go_on.set()
    await running
    assert reserved(proxy) == 0


async def test_retries_do_not_overshoot_by_more_than_a_reply(start_proxy: StartProxy) -> None:
    limit = 3 * USED
    proxy = await start_proxy(
        {**hard(per_session=limit), "reliability.escalation.max_retries_before_escalate": 1}
    )
    proxy.upstream.always(lambda _: text_stream(""))  # empty, and so tried again
    first = await ask(proxy, AGENT, max_tokens=4)
    assert first.headers["x-mlx-stack-attempts"] == "2"
    error = checked_error(await ask(proxy, AGENT, max_tokens=4), 429, "budget_exceeded")
    assert (error["used"], error["limit"]) == (limit, limit)
    assert [one["reason"] for one in error["attempts"]] == ["empty_response"]
    assert len(proxy.upstream.calls) == 3
    assert (await session_of(proxy))["used"] == limit


async def test_who_waits_goes_on_when_what_others_have_set_aside_comes_back(
    start_proxy: StartProxy,
) -> None:
    """Also what one that failed has not used."""
    proxy = await start_proxy(hard(per_hour=3 * USED))
    go_on = asyncio.Event()
    proxy.upstream.will(Reply(500, (), (Wait(go_on), b"no")), text_stream("Hello"))
    first = asyncio.create_task(ask(proxy, AGENT))
    await proxy.upstream.next_call()
    second = asyncio.create_task(ask(proxy, OTHER))
    await until(lambda: waiting() == 1)
    go_on.set()
    assert (await first).status_code == 502
    assert (await second).status_code == 200


# Whose


async def test_two_requests_of_one_id_have_each_their_own(start_proxy: StartProxy) -> None:
    proxy = await start_proxy(hard())
    go_on = asyncio.Event()
    proxy.upstream.always(lambda _: held(go_on))
    same = {**AGENT, "x-request-id": "always-the-same"}
    chats = [asyncio.create_task(ask(proxy, same, max_tokens=1000)) for _ in range(2)]
    passing = [
        asyncio.create_task(proxy.client.post("/v1/responses", json={"input": "x"}, headers=same))
        for _ in range(2)
    ]
    for _ in range(4):
        await proxy.upstream.next_call()
    most = proxy.services.settings.reliability.token_budget.max_output_tokens
    assert reserved(proxy) > 2 * 1000 + 2 * most
    go_on.set()
    await asyncio.gather(*chats, *passing)
    assert reserved(proxy) == 0


async def test_a_client_that_leaves_while_it_waits_leaves_nothing_behind(
    start_proxy: StartProxy,
) -> None:
    proxy = await start_proxy({**hard(per_hour=1000), "tiers.fast.max_concurrency": 1})
    go_on = asyncio.Event()
    proxy.upstream.will(held(go_on), text_stream("Hello"))
    first = asyncio.create_task(ask(proxy, AGENT, max_tokens=20))
    await proxy.upstream.next_call()
    alone = reserved(proxy)
    second = asyncio.create_task(ask(proxy, OTHER, max_tokens=20))  # waits for the tier
    await until(lambda: reserved(proxy) == 2 * alone)
    second.cancel()
    await until(lambda: reserved(proxy) == alone)
    go_on.set()
    assert (await first).status_code == 200
    assert reserved(proxy) == 0


# A store that is late


async def test_a_server_that_hangs_and_comes_back_has_nothing_set_aside(
    upstream: ScriptedServer, start_proxy: StartProxy, redis: RedisServer
) -> None:
    changes = {"state.backend": "redis", "state.redis_url": redis.url, **hard(per_session=5000)}
    proxy = await start_proxy(changes)
    services = proxy.services
    limits = [Limit("session:s", 5000, rolling=False)]
    first = Reservation(services, "first", "s")
    assert await first.make(limits, 4000, 600.0) is None  # the server knows the script
    await first.settle(dict.fromkeys(limits, 0), "")
    redis.freeze()
    late = Reservation(services, "late", "s")
    with pytest.raises(StoreError):
        await late.make(limits, 4000, 600.0)  # it was sent, and will be made
    redis.thaw()
    after = Reservation(services, "after", "s")
    assert await after.make(limits, 4000, 600.0, patience=10.0) is None


# What is said of budgets


async def test_refusals_are_kept_once_a_minute_of_a_session(start_proxy: StartProxy) -> None:
    proxy = await start_proxy(hard(per_session=USED))
    proxy.upstream.always(lambda _: text_stream("Hello"))
    await ask(proxy, AGENT)
    before = len(await events_of(proxy, "budget_exceeded"))
    for _ in range(5):
        checked_error(await ask(proxy, AGENT), 429, "budget_exceeded")
    refused = (await events_of(proxy, "budget_exceeded"))[before:]
    assert refused == [{"scope": "session", "used": USED, "limit": USED}]
    assert (await session_of(proxy))["turns"] == 1, "to be refused is no use of a session"


async def test_a_fault_in_the_books_keeps_no_reply_back(
    start_proxy: StartProxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*args: Any) -> Any:
        raise ZeroDivisionError

    proxy = await start_proxy()
    monkeypatch.setattr(Reservation, "note_thresholds", broken)
    proxy.upstream.always(lambda _: text_stream("Hello"))
    assert (await ask(proxy, AGENT)).status_code == 200
    assert (await session_of(proxy))["used"] == USED
    await until_metric(proxy, "mlx_stack_stage_faults_total", 1, stage="books")
