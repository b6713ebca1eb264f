"""What is set aside for whom, and until when."""

from __future__ import annotations

import asyncio

import pytest

from mlx_stack_proxy.state.store import Limit, StoreError
from mlx_stack_proxy.token_budget.reservation import Reservation
from tests.server.asking import ask, checked_error, frames
from tests.server.conftest import StartProxy
from tests.server.counting import AGENT, BUDGET, OTHER, USED, hard, held, session_of, waiting
from tests.support.redis_server import RedisServer
from tests.support.replies import DONE, text_stream
from tests.support.running_proxy import RunningProxy
from tests.support.scripted_server import Reply, ScriptedServer, Wait
from tests.support.waiting import until

pytestmark = pytest.mark.usefixtures("redis_asked_again_soon")


def reserved(proxy: RunningProxy) -> int:
    """Over all sessions, those that nobody has finished an exchange in too."""
    ledger = proxy.services.store._image.ledger  # type: ignore[attr-defined]
    return sum(tokens for scope, tokens in ledger._reserved.items() if scope == "hour")


# How much


async def test_all_choices_are_set_aside(upstream: ScriptedServer, start_proxy: StartProxy) -> None:
    proxy = await start_proxy(hard())
    go_on = asyncio.Event()
    upstream.will(held(go_on), text_stream("Hello"))
    running = asyncio.create_task(ask(proxy, AGENT, max_tokens=1000, n=3))
    await upstream.next_call()
    assert 3000 < reserved(proxy) < 3000 + 600
    go_on.set()
    await running
    assert reserved(proxy) == 0


async def test_what_is_sent_upstream_is_what_is_set_aside(
    upstream: ScriptedServer, start_proxy: StartProxy
) -> None:
    """Not the limit for tool calls, which only loop detection looks at."""
    limits = {f"{BUDGET}.max_output_tokens": 200, f"{BUDGET}.tool_calls.default_max_tokens": 50}
    proxy = await start_proxy({**hard(), **limits})
    go_on = asyncio.Event()
    upstream.will(held(go_on))
    tool = {"type": "function", "function": {"name": "look", "parameters": {"type": "object"}}}
    running = asyncio.create_task(ask(proxy, AGENT, tools=[tool]))
    call = await upstream.next_call()
    assert call.json()["max_tokens"] == 200
    assert 200 < reserved(proxy) < 200 + 600
    go_on.set()
    await running


async def test_no_more_than_the_tiers_window_is_set_aside_for_a_prompt(
    upstream: ScriptedServer, start_proxy: StartProxy
) -> None:
    """So that sub-agents need not wait for each other long before the budget is used up."""
    proxy = await start_proxy({**hard(per_hour=100_000), "tiers.fast.context_window": 4000})
    go_on = asyncio.Event()
    upstream.will(held(go_on))
    messages = [{"role": "user", "content": "prose " * 2000}]
    running = asyncio.create_task(ask(proxy, AGENT, messages=messages, max_tokens=100))
    await upstream.next_call()
    assert reserved(proxy) == 4000 + 100
    go_on.set()
    await running


async def test_retries_do_not_overshoot_by_more_than_a_reply(
    upstream: ScriptedServer, start_proxy: StartProxy
) -> None:
    limit = 3 * USED
    proxy = await start_proxy(
        {**hard(per_session=limit), "reliability.escalation.max_retries_before_escalate": 1}
    )
    upstream.always(lambda _: text_stream(""))  # empty, and so tried again
    first = await ask(proxy, AGENT, max_tokens=4)
    assert first.headers["x-mlx-stack-attempts"] == "2"
    error = checked_error(await ask(proxy, AGENT, max_tokens=4), 429, "budget_exceeded")
    assert (error["used"], error["limit"]) == (limit, limit)
    assert [one["reason"] for one in error["attempts"]] == ["empty_response"]
    assert len(upstream.calls) == 3
    assert (await session_of(proxy))["used"] == limit


async def test_a_request_that_may_need_more_than_is_left_begins_all_the_same(
    upstream: ScriptedServer, start_proxy: StartProxy
) -> None:
    """Agents leave ``max_tokens`` to the server: what they may use is more than most budgets."""
    proxy = await start_proxy(hard(per_session=3 * USED))
    upstream.always(lambda _: text_stream("Hello"))
    statuses = [(await ask(proxy, AGENT)).status_code for _ in range(4)]
    assert statuses == [200, 200, 200, 429]


async def test_but_never_two_of_them_at_once(
    upstream: ScriptedServer, start_proxy: StartProxy
) -> None:
    proxy = await start_proxy({**hard(per_hour=3 * USED), "tiers.fast.queue_timeout": 0})
    go_on = asyncio.Event()
    upstream.will(held(go_on))
    first = asyncio.create_task(ask(proxy, AGENT))
    await upstream.next_call()
    refused = await ask(proxy, OTHER)
    error = checked_error(refused, 429, "budget_exceeded")
    assert (error["used"], error["retry_after"]) == (0, 5)
    assert refused.headers["retry-after"] == "5"
    assert "used up" not in error["message"]
    go_on.set()
    assert (await first).status_code == 200


def named(name: str) -> dict[str, str]:
    return {"X-MLX-Stack-Session": f"session-{name}"}


async def test_who_waits_goes_on_when_what_others_have_set_aside_comes_back(
    upstream: ScriptedServer, start_proxy: StartProxy
) -> None:
    """Also what one that failed has not used."""
    proxy = await start_proxy(hard(per_hour=3 * USED))
    go_on = asyncio.Event()
    upstream.will(Reply(500, (), (Wait(go_on), b"no")), text_stream("Hello"))
    first = asyncio.create_task(ask(proxy, AGENT))
    await upstream.next_call()
    second = asyncio.create_task(ask(proxy, OTHER))
    await until(lambda: waiting() == 1)
    go_on.set()
    assert (await first).status_code == 502
    assert (await second).status_code == 200


async def test_who_has_nothing_left_is_told_so_though_others_wait(
    upstream: ScriptedServer, start_proxy: StartProxy
) -> None:
    proxy = await start_proxy({**hard(per_hour=300, per_session=USED)})
    gate = asyncio.Event()
    upstream.will(text_stream("Hello"), held(gate), text_stream("Hello"))
    assert (await ask(proxy, AGENT, max_tokens=100)).status_code == 200
    first = asyncio.create_task(ask(proxy, named("first"), max_tokens=200))
    large = asyncio.create_task(ask(proxy, named("large"), max_tokens=250))
    await until(lambda: waiting() == 1)
    checked_error(await ask(proxy, AGENT, max_tokens=100), 429, "budget_exceeded")
    gate.set()
    assert [(await task).status_code for task in (first, large)] == [200, 200]


# Whose


async def test_two_requests_of_one_id_have_each_their_own(
    upstream: ScriptedServer, start_proxy: StartProxy
) -> None:
    proxy = await start_proxy(hard())
    go_on = asyncio.Event()
    upstream.always(lambda _: held(go_on))
    same = {**AGENT, "x-request-id": "always-the-same"}
    chats = [asyncio.create_task(ask(proxy, same, max_tokens=1000)) for _ in range(2)]
    passing = [
        asyncio.create_task(proxy.client.post("/v1/responses", json={"input": "x"}, headers=same))
        for _ in range(2)
    ]
    for _ in range(4):
        await upstream.next_call()
    most = proxy.services.settings.reliability.token_budget.max_output_tokens
    assert reserved(proxy) > 2 * 1000 + 2 * most
    go_on.set()
    await asyncio.gather(*chats, *passing)
    assert reserved(proxy) == 0


async def test_a_client_that_leaves_while_it_waits_leaves_nothing_behind(
    upstream: ScriptedServer, start_proxy: StartProxy
) -> None:
    proxy = await start_proxy({**hard(per_hour=1000), "tiers.fast.max_concurrency": 1})
    go_on = asyncio.Event()
    upstream.will(held(go_on), text_stream("Hello"))
    first = asyncio.create_task(ask(proxy, AGENT, max_tokens=20))
    await upstream.next_call()
    alone = reserved(proxy)
    second = asyncio.create_task(ask(proxy, OTHER, max_tokens=20))  # waits for the tier
    await until(lambda: reserved(proxy) == 2 * alone)
    second.cancel()
    await until(lambda: reserved(proxy) == alone)
    go_on.set()
    assert (await first).status_code == 200
    assert reserved(proxy) == 0


async def test_a_stream_that_waits_for_others_names_its_tier(
    upstream: ScriptedServer, start_proxy: StartProxy
) -> None:
    proxy = await start_proxy({**hard(per_hour=100), "stream.keepalive_seconds": 0.05})
    go_on = asyncio.Event()
    upstream.will(held(go_on), text_stream("Hello"))
    first = asyncio.create_task(ask(proxy, AGENT))
    await upstream.next_call()
    async with proxy.client.stream(
        "POST",
        "/v1/chat/completions",
        json={"model": "fast", "stream": True, "messages": [{"role": "user", "content": "Hi"}]},
        headers=OTHER,
    ) as second:
        assert second.headers["x-mlx-stack-tier"] == "fast"
        go_on.set()
        whole = b"".join([piece async for piece in second.aiter_raw()])
    assert frames(whole)[0] == b": keep-alive\n\n"
    assert whole.endswith(DONE)
    assert (await first).status_code == 200


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
