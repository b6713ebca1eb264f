"""Where a tier is moved up from too often so far into a task, exchanges begin on the next one."""

from __future__ import annotations

import asyncio
from typing import Any

import httpx
import pytest

from mlx_stack_proxy.escalation.track_record import TrackRecord
from tests.shell.asking import ask
from tests.shell.climbing import CHAIN, asked, three_tiers
from tests.shell.conftest import StartProxy
from tests.shell.polling import until_metric
from tests.support.replies import data, litellm_error, text_chunks, text_stream
from tests.support.running_proxy import RunningProxy
from tests.support.scripted_server import Reply, ScriptedServer, Wait

SETTINGS = {
    "reliability.escalation.chain": ["fast", "standard"],
    "reliability.escalation.sticky_seconds": 0,
}
STEP = [
    {"role": "assistant", "content": "Step one."},
    {"role": "tool", "tool_call_id": "c", "content": "done"},
]
TASK = [{"role": "user", "content": "Do both steps."}]
NOTHING, ANSWER = text_stream(""), text_stream("Step two.")


async def step(proxy: RunningProxy, steps: int = 1, **more: Any) -> httpx.Response:
    response = await ask(proxy, messages=[*TASK, *STEP * steps], **more)
    assert response.status_code == 200
    return response


async def lost(upstream: ScriptedServer, proxy: RunningProxy) -> None:
    """`fast` gives nothing at a task's second step, five times."""
    for _ in range(5):
        upstream.will(NOTHING, ANSWER)
        await step(proxy)
    assert asked(upstream) == ["fast", "standard"] * 5


async def foreseen(proxy: RunningProxy) -> float:
    lines = (await proxy.client.get("/metrics")).text.splitlines()
    return sum(float(x.split()[-1]) for x in lines if x.startswith("mlx_stack_foreseen_total{"))


async def test_it_begins_on_the_next_tier_but_for_each_eighth(
    upstream: ScriptedServer, start_proxy: StartProxy
) -> None:
    proxy = await start_proxy(SETTINGS)
    await lost(upstream, proxy)
    upstream.always(ANSWER)
    begun = len(upstream.calls)
    answers = [await step(proxy) for number in range(8)]
    assert asked(upstream)[begun:] == ["standard"] * 7 + ["fast"]
    await step(proxy, steps=3)
    assert asked(upstream)[-1] == "standard", "further on it is lost, too"
    assert answers[0].headers["x-mlx-stack-tier"] == "standard"
    assert "x-mlx-stack-escalated-from" not in answers[0].headers
    assert await foreseen(proxy) == 8


@pytest.mark.parametrize(
    ("changes", "sent"),
    [
        ({}, {"steps": 0}),  # a task's first reply is its own tier's
        ({}, {"headers": {"x-mlx-stack-tier": "fast"}}),
        ({}, {"headers": {"x-mlx-stack-escalation": "off"}}),
        ({"reliability.escalation.foresee_above": 1}, {}),
    ],
)
async def test_it_does_not(
    upstream: ScriptedServer, start_proxy: StartProxy, changes: dict[str, Any], sent: Any
) -> None:
    proxy = await start_proxy({**SETTINGS, **changes})
    await lost(upstream, proxy)
    upstream.always(ANSWER)
    begun = len(upstream.calls)
    await step(proxy, **sent)
    assert asked(upstream)[begun:] == ["fast"]
    assert await foreseen(proxy) == 0


@pytest.mark.parametrize(
    ("replies", "tiers"),
    [
        ((litellm_error(500, "no"), ANSWER), ["fast", "standard"]),
        ((NOTHING,), ["fast"]),  # an error: there is no other tier
    ],
    ids=["a server's fault", "nowhere to go"],
)
async def test_what_says_nothing_of_the_model(
    upstream: ScriptedServer, start_proxy: StartProxy, replies: tuple[Reply, ...], tiers: list[str]
) -> None:
    proxy = await start_proxy({**SETTINGS, "reliability.escalation.degrade.failures": 100})
    off = {"x-mlx-stack-escalation": "off"} if len(tiers) == 1 else {}
    for _ in range(5):
        upstream.will(*replies)
        await ask(proxy, off, messages=[*TASK, *STEP])
    assert asked(upstream) == tiers * 5
    upstream.always(ANSWER)
    begun = len(upstream.calls)
    await step(proxy)
    assert asked(upstream)[begun:] == ["fast"]
    assert await foreseen(proxy) == 0


async def test_what_two_tiers_have_lost_counts_for_the_first(
    upstream: ScriptedServer, start_proxy: StartProxy
) -> None:
    proxy = await three_tiers(upstream, start_proxy, sticky_seconds=0)
    for _ in range(5):
        upstream.will(NOTHING, NOTHING, ANSWER)
        await step(proxy)
    assert asked(upstream) == [*CHAIN] * 5
    upstream.always(ANSWER)
    await step(proxy)
    assert asked(upstream)[15:] == ["standard"]


async def test_no_tier_is_left_out_on_a_guess(
    upstream: ScriptedServer, start_proxy: StartProxy
) -> None:
    """The next tier is degraded: that is no reason to begin on the one after it."""
    proxy = await three_tiers(upstream, start_proxy, sticky_seconds=0, degrade={"failures": 1})
    await lost(upstream, proxy)
    upstream.will(litellm_error(500, "no"), ANSWER)
    await ask(proxy, {"x-mlx-stack-tier": "standard"}, messages=TASK)
    upstream.always(ANSWER)
    begun = len(upstream.calls)
    await step(proxy)
    assert asked(upstream)[begun:] == ["fast"]


async def test_who_is_to_save_tokens_begins_no_further_up(
    upstream: ScriptedServer, start_proxy: StartProxy
) -> None:
    changes = {
        "reliability.token_budget.policy": "escalate",
        "reliability.token_budget.downgrade_tier": "fast",
        "reliability.token_budget.per_session": 1,
    }
    degrade = {"failures": 1}
    proxy = await three_tiers(upstream, start_proxy, changes, sticky_seconds=0, degrade=degrade)
    for number in range(5):  # `standard` loses its way
        upstream.will(NOTHING, ANSWER)
        named = {"x-mlx-stack-tier": "standard", "x-mlx-stack-session": f"other {number}"}
        await step(proxy, headers=named)
    mine = {"x-mlx-stack-session": "mine"}
    upstream.will(litellm_error(500, "no"), ANSWER)  # `fast` is degraded, and the budget used up
    await ask(proxy, mine, messages=TASK)
    upstream.always(ANSWER)
    begun = len(upstream.calls)
    await step(proxy, headers=mine)
    assert asked(upstream)[begun:] == ["standard"]


@pytest.mark.parametrize("method", ["fails", "note"])
async def test_a_fault_of_its_own_breaks_no_reply(
    upstream: ScriptedServer,
    start_proxy: StartProxy,
    monkeypatch: pytest.MonkeyPatch,
    method: str,
) -> None:
    def broken(*_: object, **__: object) -> bool:
        raise RuntimeError("a bug")

    monkeypatch.setattr(TrackRecord, method, broken)
    proxy = await start_proxy(SETTINGS)
    upstream.will(ANSWER)
    assert "Step two." in (await step(proxy)).text
    await until_metric(proxy, "mlx_stack_stage_faults_total", 1, stage="track_record")


async def test_nobody_waits_for_the_next_tier(
    upstream: ScriptedServer, start_proxy: StartProxy
) -> None:
    proxy = await start_proxy({**SETTINGS, "tiers.standard.max_concurrency": 1})
    await lost(upstream, proxy)
    begun = len(upstream.calls)
    release = asyncio.Event()
    role, text, end = (data(one) for one in text_chunks("Slowly."))
    upstream.will(Reply.sse(role, text, Wait(release), end), ANSWER)
    first = asyncio.create_task(step(proxy))
    while len(upstream.calls) == begun:
        await upstream.next_call()
    await step(proxy)
    assert asked(upstream)[begun:] == ["standard", "fast"]
    release.set()
    await first
