"""A tier's own budget: warned of, gone past, refused where no other tier may take the request."""

from __future__ import annotations

import asyncio
from typing import Any

from tests.server.asking import ask, checked_error
from tests.server.climbing import ESCALATION, asked, three_tiers
from tests.server.conftest import StartProxy
from tests.server.counting import AGENT, BUDGET, NO_LOOPS, OTHER, USED, events_of
from tests.support.replies import (
    DONE,
    END,
    ROLE,
    TEXT,
    litellm_error,
    text_stream,
)
from tests.support.scripted_server import Reply, ScriptedServer, Wait


def rules(policy: str, **per_tier: Any) -> dict[str, Any]:
    return {**NO_LOOPS, f"{BUDGET}.policy": policy, f"{BUDGET}.per_tier": per_tier}


async def test_warn_and_continue_says_it_and_goes_on(
    upstream: ScriptedServer, start_proxy: StartProxy
) -> None:
    proxy = await three_tiers(
        upstream, start_proxy, rules("warn_and_continue", fast={"per_hour": 20})
    )
    upstream.always(lambda _: text_stream("Hello"))
    said = [
        (await ask(proxy, AGENT, model=model)).headers.get("x-mlx-stack-budget-warning")
        for model in ("fast", "fast", "standard", "fast")
    ]
    assert said == [None, None, None, "130%"]
    assert asked(upstream) == ["fast", "fast", "standard", "fast"]
    scopes = {"scope": "tier", "limit": 20}
    assert await events_of(proxy, "budget_warning") == [{**scopes, "threshold": 0.8}]
    assert await events_of(proxy, "budget_exceeded") == [{**scopes, "threshold": 1.0}]


async def test_hard_stop_goes_past_a_tier_whose_budget_is_used_up(
    upstream: ScriptedServer, start_proxy: StartProxy
) -> None:
    limits = rules("hard_stop", fast={"per_hour": USED}, standard={"per_session": USED})
    proxy = await three_tiers(upstream, start_proxy, limits)
    upstream.always(lambda _: text_stream("Hello"))
    await ask(proxy, AGENT)
    second = await ask(proxy, AGENT)
    assert second.headers["x-mlx-stack-tier"] == "standard"
    assert second.headers["x-mlx-stack-escalated-from"] == "fast"
    assert second.headers["x-mlx-stack-escalation-reason"] == "budget_exceeded"
    third = await ask(proxy, AGENT)
    assert third.headers["x-mlx-stack-tier"] == "longctx"
    # The hour of `fast` is everybody's, the session's tokens on `standard` are one agent's.
    assert (await ask(proxy, OTHER)).headers["x-mlx-stack-tier"] == "standard"
    assert asked(upstream) == ["fast", "standard", "longctx", "standard"]


async def test_hard_stop_refuses_where_no_other_tier_may_take_it(
    upstream: ScriptedServer, start_proxy: StartProxy
) -> None:
    limits = rules("hard_stop", fast={"per_hour": USED}, longctx={"per_hour": USED})
    proxy = await three_tiers(upstream, start_proxy, limits)
    upstream.always(lambda _: text_stream("Hello"))
    await ask(proxy, AGENT, model="longctx")
    error = checked_error(await ask(proxy, AGENT, model="longctx"), 429, "budget_exceeded")
    assert (error["scope"], error["used"], error["limit"]) == ("tier", USED, USED)
    assert 0 < error["retry_after"] <= 3600
    await ask(proxy, AGENT)
    stays = {**AGENT, "X-MLX-Stack-Escalation": "off"}
    checked_error(await ask(proxy, stays), 429, "budget_exceeded")
    assert (await ask(proxy, AGENT)).headers["x-mlx-stack-tier"] == "standard"
    assert asked(upstream) == ["longctx", "fast", "standard"]


async def test_a_budget_is_not_saved_at_the_clouds_expense(
    upstream: ScriptedServer, start_proxy: StartProxy
) -> None:
    changes = {
        **rules("hard_stop", fast={"per_hour": USED}),
        "tiers": {"fast": {"model": "fast"}, "premium": {"model": "premium", "local": False}},
        ESCALATION: {
            "chain": ["fast", "premium"],
            "cloud_fallback": {"model": "cloud/model"},
        },
    }
    upstream.models = ("fast", "premium")
    proxy = await start_proxy(changes)
    upstream.always(lambda _: text_stream("Hello"))
    await ask(proxy, AGENT)
    assert checked_error(await ask(proxy, AGENT), 429, "budget_exceeded")["scope"] == "tier"
    assert asked(upstream) == ["fast"]


async def test_a_climb_goes_past_it_too(upstream: ScriptedServer, start_proxy: StartProxy) -> None:
    limits = rules("hard_stop", standard={"per_hour": USED})
    proxy = await three_tiers(upstream, start_proxy, limits)
    upstream.will(text_stream("Hello"), litellm_error(500, "dead"), text_stream("Hello"))
    await ask(proxy, AGENT, model="standard")
    response = await ask(proxy, AGENT)
    assert response.headers["x-mlx-stack-tier"] == "longctx"
    assert asked(upstream) == ["standard", "fast", "longctx"]


async def test_who_waits_in_vain_for_others_goes_on_to_the_next_tier(
    upstream: ScriptedServer, start_proxy: StartProxy
) -> None:
    limits = {**rules("hard_stop", fast={"per_hour": 100}), f"{BUDGET}.max_output_tokens": 90}
    proxy = await three_tiers(upstream, start_proxy, limits)
    settings = proxy.services.settings.tiers["fast"]
    object.__setattr__(settings, "queue_timeout", 0.05)
    go_on = asyncio.Event()
    upstream.will(Reply.sse(ROLE, TEXT, Wait(go_on), END, DONE), text_stream("Hello"))
    first = asyncio.create_task(ask(proxy, AGENT))
    await upstream.next_call()
    second = await ask(proxy, OTHER)
    assert second.headers["x-mlx-stack-tier"] == "standard"
    assert second.headers["x-mlx-stack-escalation-reason"] == "budget_exceeded"
    go_on.set()
    assert (await first).headers["x-mlx-stack-tier"] == "fast"


async def test_escalate_refuses_nobody(upstream: ScriptedServer, start_proxy: StartProxy) -> None:
    limits = {
        **rules("escalate", standard={"per_hour": USED}, longctx={"per_hour": USED}),
        f"{BUDGET}.downgrade_tier": "fast",
    }
    proxy = await three_tiers(upstream, start_proxy, limits)
    upstream.always(lambda _: text_stream("Hello"))
    tiers = []
    for _ in range(3):
        response = await ask(proxy, AGENT, model="standard")
        tiers.append(response.headers["x-mlx-stack-tier"])
    assert tiers == ["standard", "longctx", "fast"], "up as long as there is budget, then down"
    assert response.headers["x-mlx-stack-escalation-reason"] == "budget_exceeded"
    named = await ask(proxy, {**AGENT, "X-MLX-Stack-Tier": "standard"})
    assert named.headers["x-mlx-stack-tier"] == "standard"


async def test_escalate_with_a_cheap_tier_that_litellm_does_not_have(
    upstream: ScriptedServer, start_proxy: StartProxy
) -> None:
    limits = {
        **rules("escalate"),
        f"{BUDGET}.downgrade_tier": "fast",
        f"{BUDGET}.per_session": 10,
    }
    proxy = await three_tiers(upstream, start_proxy, limits)
    upstream.models = ("standard", "longctx")
    upstream.always(lambda _: text_stream("Hello"))
    await ask(proxy, AGENT, model="longctx")
    response = await ask(proxy, AGENT, model="longctx")
    assert response.headers["x-mlx-stack-tier"] == "standard", "the next cheapest"
    assert (await ask(proxy, AGENT, model="standard")).headers["x-mlx-stack-tier"] == "standard"
    assert asked(upstream) == ["longctx", "standard", "standard"]


async def test_a_downgrade_is_not_turned_off_with_escalation(
    upstream: ScriptedServer, start_proxy: StartProxy
) -> None:
    limits = {**rules("escalate"), f"{BUDGET}.per_session": 10}
    proxy = await three_tiers(upstream, start_proxy, limits)
    upstream.always(lambda _: text_stream("Hello"))
    stays = {**AGENT, "X-MLX-Stack-Escalation": "off"}
    await ask(proxy, stays, model="standard")
    assert (await ask(proxy, stays, model="standard")).headers["x-mlx-stack-tier"] == "fast"
