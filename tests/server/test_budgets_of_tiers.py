"""A tier's own budget: warned of, gone past, refused where no other tier may take the request."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import httpx
import pytest

from tests.server.asking import ask, checked_error
from tests.server.climbing import asked, three_tiers
from tests.server.conftest import StartProxy
from tests.server.counting import AGENT, BUDGET, NO_LOOPS, OTHER, USED, events_of, hard
from tests.support.replies import (
    DONE,
    END,
    ROLE,
    TEXT,
    data,
    text_stream,
)
from tests.support.running_proxy import RunningProxy
from tests.support.scripted_server import Call, Reply, ScriptedServer, Wait, WhenWhole


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


# Many at once under hard_stop: together they overshoot by less than one reply


def usage_of(call: Call) -> dict[str, int]:
    """A model's that has a token for two characters, and a template of 300."""
    asked = call.json()
    text = json.dumps([asked.get("prompt"), asked.get("messages"), asked.get("response_format")])
    replies = len(asked["prompt"]) if isinstance(asked.get("prompt"), list) else 1
    most = asked["max_tokens"] * replies
    return {"prompt_tokens": 300 + len(text) // 2, "completion_tokens": most}


def saying(usage: dict[str, int]) -> Reply:
    return Reply.sse(ROLE, TEXT, END, data({"choices": [], "usage": usage}), DONE)


COUNTING = WhenWhole(lambda call: saying(usage_of(call)))


def used_by(calls: list[Call]) -> list[int]:
    """The tokens of each."""
    return [sum(usage_of(call).values()) for call in calls]


HEX = "c0ffee" * 400
Asked = Callable[[RunningProxy, str, dict[str, str]], Awaitable[httpx.Response]]


async def chat(proxy: RunningProxy, text: str, headers: dict[str, str]) -> httpx.Response:
    return await ask(proxy, headers, messages=[{"role": "user", "content": text}], max_tokens=50)


async def in_chunks(proxy: RunningProxy, text: str, headers: dict[str, str]) -> httpx.Response:
    async def parts() -> AsyncIterator[bytes]:
        yield json.dumps({"prompt": text, "max_tokens": 50}).encode()

    kind = {"content-type": "application/json"}
    return await proxy.client.post("/v1/completions", content=parts(), headers=headers | kind)


async def at_length(proxy: RunningProxy, text: str, headers: dict[str, str]) -> httpx.Response:
    """More than the proxy's own limit, which holds for chat completions only."""
    asked = {"prompt": text, "max_tokens": 4000}
    return await proxy.client.post("/v1/completions", json=asked, headers=headers)


async def several(proxy: RunningProxy, text: str, headers: dict[str, str]) -> httpx.Response:
    asked = {"prompt": [text] * 5, "max_tokens": 50}
    return await proxy.client.post("/v1/completions", json=asked, headers=headers)


@pytest.mark.parametrize(
    ("prompt", "asks"),
    [
        *((HEX, asks) for asks in (chat, in_chunks, several)),
        *(("Hi", asks) for asks in (chat, at_length)),
    ],
)
async def test_fifty_at_once_overshoot_by_less_than_one_reply(
    prompt: str, asks: Asked, upstream: ScriptedServer, start_proxy: StartProxy
) -> None:
    """However much more upstream counts than an estimate from the prompt's bytes."""
    limit = 30_000
    proxy = await start_proxy(
        {
            **hard(per_hour=limit, max_output_tokens=100),
            "tiers.fast.queue_timeout": 30,
            "tiers.fast.max_concurrency": 50,
        }
    )
    upstream.otherwise = COUNTING

    async def agent(number: int) -> list[int]:
        statuses = []
        while 429 not in statuses and len(statuses) < 100:
            headers = {"X-MLX-Stack-Session": f"agent-{number:04}"}
            statuses.append((await asks(proxy, f"{prompt}{number:02}", headers)).status_code)
        return statuses

    found = await asyncio.gather(*(agent(number) for number in range(50)))
    assert {statuses[-1] for statuses in found} == {429}
    used = used_by(upstream.calls)
    assert limit <= sum(used) < limit + used[0]
