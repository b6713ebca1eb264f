"""What clients see of an escalation, what it teaches, and where a session starts after it."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import pytest

from mlx_stack_proxy.state.store import EventQuery
from tests.faults.catalogue import BAD_CALL, EMPTY, good
from tests.faults.clients import TOOLS
from tests.server.asking import ask, checked_error
from tests.server.calling import messages_of
from tests.server.climbing import DEAD, asked, by_model, three_tiers
from tests.server.conftest import StartProxy
from tests.support.clock import Clock
from tests.support.replies import litellm_error
from tests.support.running_proxy import RunningProxy
from tests.support.scripted_server import (
    Call,
    Reply,
    ScriptedServer,
)


async def test_escalation_off_stays_on_its_tier(
    upstream: ScriptedServer, start_proxy: StartProxy
) -> None:
    proxy = await three_tiers(upstream, start_proxy, retries=1)
    upstream.always(by_model(fast=DEAD))
    response = await ask(proxy, {"X-MLX-Stack-Escalation": "off"})
    error = checked_error(response, 502, "all_tiers_failed")
    assert [attempt["tier"] for attempt in error["attempts"]] == ["fast", "fast"]
    assert asked(upstream) == ["fast", "fast"], "retries are no escalation"
    assert response.headers["x-mlx-stack-retries"] == "1"
    assert "x-mlx-stack-escalated-from" not in response.headers


async def test_the_first_escalation_is_the_one_that_is_told(
    upstream: ScriptedServer, start_proxy: StartProxy
) -> None:
    proxy = await three_tiers(upstream, start_proxy, retries=1)
    upstream.always(by_model(fast=DEAD, standard=EMPTY))
    headers = (await ask(proxy)).headers
    assert asked(upstream) == ["fast", "fast", "standard", "standard", "longctx"]
    assert headers["x-mlx-stack-tier"] == "longctx"
    assert headers["x-mlx-stack-escalated-from"] == "fast"
    assert headers["x-mlx-stack-escalation-reason"] == "server_error"
    assert headers["x-mlx-stack-retries"] == "2"
    assert headers["x-mlx-stack-attempts"] == "5"


async def test_a_tier_that_says_it_cannot_do_tools_is_gone_past_from_then_on(
    upstream: ScriptedServer, start_proxy: StartProxy
) -> None:
    proxy = await three_tiers(upstream, start_proxy, sticky_seconds=0)
    upstream.always(by_model(fast=litellm_error(400, "This model does not support tools.")))
    first = await ask(proxy, tools=TOOLS)
    assert first.headers["x-mlx-stack-tier"] == "standard"
    assert asked(upstream) == ["fast", "standard"]
    await ask(proxy, tools=TOOLS)
    assert asked(upstream)[2:] == ["standard"], "learnt"
    upstream.always(by_model())
    assert (await ask(proxy)).headers["x-mlx-stack-tier"] == "fast", "without tools it can"


# What the model was told before a server failed, it is told again; what is kept of the end


def in_turn(*replies: Reply) -> Callable[[Call], Reply]:
    left = list(replies)
    return lambda _: left.pop(0)


async def test_a_correction_outlives_a_failure_of_the_server(
    upstream: ScriptedServer, start_proxy: StartProxy
) -> None:
    changes = {"reliability.tool_validation.max_retries": 2}
    proxy = await three_tiers(upstream, start_proxy, changes, retries=1)
    upstream.always(in_turn(BAD_CALL, DEAD, good(True)))
    response = await ask(proxy, tools=TOOLS)
    assert response.json()["choices"][0]["finish_reason"] == "tool_calls"
    first, second, third = upstream.calls
    assert messages_of(second) != messages_of(first)
    assert third.json() == second.json(), "the very request that the server did not answer"


# The event of the end


async def exhausted(proxy: RunningProxy) -> list[Any]:
    return [event for _, event in await proxy.services.store.events(EventQuery(kind="exhausted"))]


async def test_an_exchange_that_no_tier_answers_is_kept(
    upstream: ScriptedServer, start_proxy: StartProxy
) -> None:
    proxy = await three_tiers(upstream, start_proxy)
    upstream.always(DEAD)
    response = await ask(proxy)
    error = checked_error(response, 502, "all_tiers_failed")
    (event,) = await exhausted(proxy)
    assert event["request_id"] == response.headers["x-mlx-stack-request-id"]
    assert event["tier"] == "longctx"
    assert event["detail"] == {
        "type": "all_tiers_failed",
        "status": 502,
        "attempts": error["attempts"],
    }


@pytest.mark.parametrize(
    ("reply", "status"),
    [(good(False), 200), (litellm_error(422, "temperature must be at most 2"), 422)],
    ids=["a good reply", "the client's own fault"],
)
async def test_of_others_there_is_none(
    reply: Reply, status: int, upstream: ScriptedServer, start_proxy: StartProxy
) -> None:
    proxy = await three_tiers(upstream, start_proxy)
    upstream.always(reply)
    assert (await ask(proxy)).status_code == status
    assert await exhausted(proxy) == []


# What an error teaches


async def test_an_overflow_that_names_no_window_is_learnt_all_the_same(
    upstream: ScriptedServer, start_proxy: StartProxy
) -> None:
    proxy = await three_tiers(upstream, start_proxy)
    upstream.always(by_model(fast=litellm_error(400, "context_length_exceeded")))
    long = [{"role": "user", "content": "The quokka sat. " * 500}]
    assert (await ask(proxy, messages=long)).headers["x-mlx-stack-tier"] == "standard"
    upstream.calls.clear()
    upstream.always(by_model())
    response = await ask(proxy, messages=long)
    assert asked(upstream) == ["standard"]
    assert response.headers["x-mlx-stack-escalation-reason"] == "context_overflow"
    assert (await ask(proxy)).headers["x-mlx-stack-tier"] == "fast", "a shorter one fits"


# After an escalation a session starts at the tier that worked, for a while

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
