"""A tier's own budget: warned of, gone past, refused where no other tier may take the request."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest

from tests.server.asking import CHAT, ask, body, checked_error
from tests.server.climbing import asked
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
from tests.support.scripted_server import Call, Reply, Wait, WhenWhole


def rules(policy: str, **per_tier: Any) -> dict[str, Any]:
    return {**NO_LOOPS, f"{BUDGET}.policy": policy, f"{BUDGET}.per_tier": per_tier}


async def test_warn_and_continue_says_it_and_goes_on(three_tiers: StartProxy) -> None:
    proxy = await three_tiers(rules("warn_and_continue", fast={"per_hour": 20}))
    proxy.upstream.always(lambda _: text_stream("Hello"))
    said = [
        (await ask(proxy, AGENT, model=model)).headers.get("x-mlx-stack-budget-warning")
        for model in ("fast", "fast", "standard", "fast")
    ]
    assert said == [None, None, None, "130%"]
    assert asked(proxy.upstream) == ["fast", "fast", "standard", "fast"]
    scopes = {"scope": "tier", "limit": 20}
    assert await events_of(proxy, "budget_warning") == [{**scopes, "threshold": 0.8}]
    assert await events_of(proxy, "budget_exceeded") == [{**scopes, "threshold": 1.0}]


STAYS = {**AGENT, "X-MLX-Stack-Escalation": "off"}
NAMED = {**AGENT, "X-MLX-Stack-Tier": "standard"}
DOWN = {f"{BUDGET}.downgrade_tier": "fast"}
ONCE = {"per_hour": USED}
# Who asks which model, and the tier that answers; None: the request is refused.
Story = list[tuple[dict[str, str], str, str | None]]
STORIES: dict[str, tuple[dict[str, Any], Story]] = {
    # The hour of `fast` is everybody's, the session's tokens on `standard` are one agent's.
    "hard_stop goes past a tier whose budget is used up": (
        rules("hard_stop", fast=ONCE, standard={"per_session": USED}),
        [
            (AGENT, "fast", "fast"),
            (AGENT, "fast", "standard"),
            (AGENT, "fast", "longctx"),
            (OTHER, "fast", "standard"),
        ],
    ),
    "hard_stop refuses where no other tier may take it": (
        rules("hard_stop", fast=ONCE, longctx=ONCE),
        [
            (AGENT, "longctx", "longctx"),
            (AGENT, "longctx", None),
            (AGENT, "fast", "fast"),
            (STAYS, "fast", None),
            (AGENT, "fast", "standard"),
        ],
    ),
    "escalate goes up as long as there is budget, then down, and refuses nobody": (
        {**rules("escalate", standard=ONCE, longctx=ONCE), **DOWN},
        [
            (AGENT, "standard", "standard"),
            (AGENT, "standard", "longctx"),
            (AGENT, "standard", "fast"),
            (NAMED, "standard", "standard"),
        ],
    ),
}


@pytest.mark.parametrize("name", STORIES)
async def test_who_answers(name: str, three_tiers: StartProxy) -> None:
    limits, story = STORIES[name]
    proxy = await three_tiers(limits)
    proxy.upstream.always(lambda _: text_stream("Hello"))
    for headers, model, tier in story:
        response = await ask(proxy, headers, model=model)
        if tier is None:
            error = checked_error(response, 429, "budget_exceeded")
            assert (error["scope"], error["used"], error["limit"]) == ("tier", USED, USED)
            assert 0 < error["retry_after"] <= 3600
            continue
        assert response.headers["x-mlx-stack-tier"] == tier
        reason = response.headers.get("x-mlx-stack-escalation-reason")
        assert reason == (None if tier == model else "budget_exceeded")
    assert asked(proxy.upstream) == [tier for *_, tier in story if tier]


async def test_who_waits_in_vain_for_others_goes_on_to_the_next_tier(
    three_tiers: StartProxy,
) -> None:
    limits = {**rules("hard_stop", fast={"per_hour": 100}), f"{BUDGET}.max_output_tokens": 90}
    proxy = await three_tiers({**limits, "tiers.fast.queue_timeout": 0.05})
    go_on = asyncio.Event()
    proxy.upstream.will(Reply.sse(ROLE, TEXT, Wait(go_on), END, DONE), text_stream("Hello"))
    first = asyncio.create_task(ask(proxy, AGENT))
    await proxy.upstream.next_call()
    second = await ask(proxy, OTHER)
    assert second.headers["x-mlx-stack-tier"] == "standard"
    assert second.headers["x-mlx-stack-escalation-reason"] == "budget_exceeded"
    go_on.set()
    assert (await first).headers["x-mlx-stack-tier"] == "fast"


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
COMPLETIONS = "/v1/completions"


@pytest.mark.parametrize(
    ("path", "text", "copies", "most"),
    [
        (CHAT, HEX, 1, 50),
        (CHAT, "Hi", 1, 50),
        (COMPLETIONS, HEX, 5, 50),
        (COMPLETIONS, "Hi", 1, 4000),  # the proxy's own limit holds for chat completions only
    ],
)
async def test_fifty_at_once_overshoot_by_less_than_one_reply(
    path: str, text: str, copies: int, most: int, *, start_proxy: StartProxy
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
    proxy.upstream.otherwise = COUNTING

    async def agent(number: int) -> list[int]:
        said = f"{text}{number:02}"
        messages = [{"role": "user", "content": said}]
        asked = body(messages=messages) if path == CHAT else {"prompt": [said] * copies}
        headers = {"X-MLX-Stack-Session": f"agent-{number:04}", "content-type": "application/json"}

        async def parts() -> AsyncIterator[bytes]:
            """A body whose length no header says."""
            yield json.dumps({**asked, "max_tokens": most}).encode()

        statuses = []
        while 429 not in statuses and len(statuses) < 100:
            response = await proxy.client.post(path, content=parts(), headers=headers)
            statuses.append(response.status_code)
        return statuses

    found = await asyncio.gather(*(agent(number) for number in range(50)))
    assert {statuses[-1] for statuses in found} == {429}
    used = used_by(proxy.upstream.calls)
    assert limit <= sum(used) < limit + used[0]
