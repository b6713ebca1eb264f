"""After an escalation a session starts at the tier that worked, for a while."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from tests.faults.catalogue import EMPTY
from tests.server.asking import ask, checked_error
from tests.server.climbing import DEAD, asked, by_model, three_tiers
from tests.server.conftest import StartProxy
from tests.support.clock import Clock
from tests.support.running_proxy import RunningProxy
from tests.support.scripted_server import ScriptedServer

MINE = {"X-MLX-Stack-Session": "session-one"}
OTHER = {"X-MLX-Stack-Session": "session-two"}


_turns = itertools.count()


def turn() -> list[dict[str, str]]:
    """A new question each time: the same one with the same answer would be a loop."""
    return [{"role": "user", "content": f"Where does quokka number {next(_turns)} live?"}]


@pytest.fixture
async def proxy(upstream: ScriptedServer, start_proxy: StartProxy, clock: Clock) -> RunningProxy:
    return await three_tiers(upstream, start_proxy, wall_clock=clock, sticky_seconds=300)


async def escalate(upstream: ScriptedServer, proxy: RunningProxy, **more: Any) -> None:
    """One escalation to `standard`; from then on all tiers are well."""
    upstream.always(by_model(fast=EMPTY))
    assert await tier_of(proxy, MINE, **more) == "standard"
    upstream.always(by_model())
    upstream.calls.clear()


async def tier_of(proxy: RunningProxy, headers: dict[str, str], **more: Any) -> str:
    """Where a further turn is answered."""
    response = await ask(proxy, headers, messages=turn(), **more)
    assert response.status_code == 200, response.text
    tier: str = response.headers["x-mlx-stack-tier"]
    return tier


async def test_the_next_turns_start_at_the_tier_that_worked(
    upstream: ScriptedServer, proxy: RunningProxy
) -> None:
    await escalate(upstream, proxy)
    response = await ask(proxy, MINE, messages=turn())
    assert asked(upstream) == ["standard"], "the turn does not pay for the weak tier again"
    assert "x-mlx-stack-escalated-from" not in response.headers, "nothing was escalated in it"
    assert await tier_of(proxy, OTHER) == "fast", "another session is not concerned"
    assert await tier_of(proxy, MINE, model="longctx") == "longctx"


async def test_it_ends_and_use_does_not_renew_it(
    upstream: ScriptedServer, proxy: RunningProxy, clock: Clock
) -> None:
    await escalate(upstream, proxy)
    for _ in range(3):
        clock.now += 99
        assert await tier_of(proxy, MINE) == "standard"
    clock.now += 3
    assert await tier_of(proxy, MINE) == "fast"


async def test_a_named_tier_is_stronger(upstream: ScriptedServer, proxy: RunningProxy) -> None:
    await escalate(upstream, proxy)
    assert await tier_of(proxy, {**MINE, "X-MLX-Stack-Tier": "fast"}) == "fast"
    assert await tier_of(proxy, {**MINE, "X-MLX-Stack-Escalation": "off"}) == "fast"


async def test_it_is_kept_by_the_requested_model(
    upstream: ScriptedServer, start_proxy: StartProxy, clock: Clock
) -> None:
    proxy = await three_tiers(
        upstream, start_proxy, wall_clock=clock, aliases={"gpt-4o-mini": "fast"}
    )
    await escalate(upstream, proxy)
    assert await tier_of(proxy, MINE, model="gpt-4o-mini") == "fast"
    assert await tier_of(proxy, MINE) == "standard"


async def test_what_failed_is_not_stuck_to(upstream: ScriptedServer, proxy: RunningProxy) -> None:
    upstream.always(DEAD)
    checked_error(await ask(proxy, MINE, messages=turn()), 502, "all_tiers_failed")
    upstream.always(by_model())
    assert await tier_of(proxy, MINE) == "fast"


async def test_it_can_be_turned_off(
    upstream: ScriptedServer, start_proxy: StartProxy, clock: Clock
) -> None:
    proxy = await three_tiers(upstream, start_proxy, wall_clock=clock, sticky_seconds=0)
    await escalate(upstream, proxy)
    assert await tier_of(proxy, MINE) == "fast"
