"""What clients see of an escalation, what it teaches, and where a session starts after it."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from mlx_stack_proxy.state.store import EventQuery
from tests.faults.catalogue import BAD_CALL, EMPTY, good
from tests.faults.clients import TOOLS
from tests.server.asking import ask, checked_error
from tests.server.calling import messages_of
from tests.server.climbing import DEAD, asked, by_model
from tests.server.conftest import StartProxy
from tests.support.clock import Clock
from tests.support.replies import litellm_error
from tests.support.running_proxy import RunningProxy
from tests.support.scripted_server import (
    Reply,
)


async def test_the_first_escalation_is_the_one_that_is_told(three_tiers: StartProxy) -> None:
    proxy = await three_tiers(retries=1)
    proxy.upstream.always(by_model(fast=DEAD, standard=EMPTY))
    headers = (await ask(proxy)).headers
    assert asked(proxy.upstream) == ["fast", "fast", "standard", "standard", "longctx"]
    assert headers["x-mlx-stack-tier"] == "longctx"
    assert headers["x-mlx-stack-escalated-from"] == "fast"
    assert headers["x-mlx-stack-escalation-reason"] == "server_error"
    assert headers["x-mlx-stack-retries"] == "2"
    assert headers["x-mlx-stack-attempts"] == "5"


LONG = [{"role": "user", "content": "The quokka sat. " * 500}]


@pytest.mark.parametrize(
    ("error", "asking", "reason"),
    [
        (
            litellm_error(400, "This model does not support tools."),
            {"tools": TOOLS},
            "server_error",
        ),
        (
            Reply.json({"error": {"code": "context_length_exceeded"}}, status=400),
            {"messages": LONG},
            "context_overflow",
        ),
    ],
    ids=["no tools", "a window that the error does not name"],
)
async def test_what_an_error_teaches_holds_for_such_requests_from_then_on(
    error: Reply, asking: dict[str, Any], reason: str, three_tiers: StartProxy
) -> None:
    proxy = await three_tiers(sticky_seconds=0)
    proxy.upstream.always(by_model(fast=error))
    first = await ask(proxy, **asking)
    assert first.headers["x-mlx-stack-tier"] == "standard"
    assert first.headers["x-mlx-stack-escalation-reason"] == reason
    proxy.upstream.always(by_model())
    await ask(proxy, **asking)
    assert (await ask(proxy)).headers["x-mlx-stack-tier"] == "fast", "another request it can answer"
    assert asked(proxy.upstream) == ["fast", "standard", "standard", "fast"]


# What the model was told before a server failed, it is told again; what is kept of the end


async def test_a_correction_outlives_a_failure_of_the_server(three_tiers: StartProxy) -> None:
    changes = {"reliability.tool_validation.max_retries": 2}
    proxy = await three_tiers(changes, retries=2)
    proxy.upstream.will(BAD_CALL, DEAD, good(True))
    response = await ask(proxy, tools=TOOLS)
    assert response.json()["choices"][0]["finish_reason"] == "tool_calls"
    first, second, third = proxy.upstream.calls
    assert messages_of(second) != messages_of(first)
    repeated = {key: value for key, value in second.json().items() if key != "response_format"}
    assert third.json() == repeated, "without the schema, which the server may have refused"


OVER_422 = litellm_error(422, "temperature must be at most 2")


@pytest.mark.parametrize(
    ("reply", "status", "kept"),
    [(DEAD, 502, True), (good(False), 200, False), (OVER_422, 422, False)],
    ids=["no tier answers", "a good reply", "the client's own fault"],
)
async def test_an_exchange_that_no_tier_answers_is_kept(
    reply: Reply, status: int, kept: bool, three_tiers: StartProxy
) -> None:
    proxy = await three_tiers()
    proxy.upstream.always(reply)
    response = await ask(proxy)
    assert response.status_code == status
    found = [event for _, event in await proxy.services.store.events(EventQuery(kind="exhausted"))]
    assert len(found) == kept
    for event in found:
        assert event["request_id"] == response.headers["x-mlx-stack-request-id"]
        assert event["tier"] == "longctx"
        attempts = response.json()["error"]["attempts"]
        detail = {"type": "all_tiers_failed", "status": 502, "attempts": attempts}
        assert event["detail"] == detail


# After an escalation a session starts at the tier that worked, for a while

MINE = {"X-MLX-Stack-Session": "session-one"}
OTHER = {"X-MLX-Stack-Session": "session-two"}


_turns = itertools.count()


def turn() -> list[dict[str, str]]:
    """A new question each time: the same one with the same answer would be a loop."""
    return [{"role": "user", "content": f"Where does quokka number {next(_turns)} live?"}]


async def tier_of(proxy: RunningProxy, headers: dict[str, str], **more: Any) -> str:
    """Where a further turn is answered."""
    response = await ask(proxy, headers, messages=turn(), **more)
    assert response.status_code == 200, response.text
    tier: str = response.headers["x-mlx-stack-tier"]
    return tier


async def test_after_an_escalation_the_session_starts_at_the_tier_that_worked_for_a_while(
    clock: Clock, three_tiers: StartProxy
) -> None:
    rules: Any = {"sticky_seconds": 300, "aliases": {"gpt-4o-mini": "fast"}}
    proxy = await three_tiers(wall_clock=clock, **rules)
    proxy.upstream.always(by_model(fast=EMPTY))
    assert await tier_of(proxy, MINE) == "standard"
    proxy.upstream.always(by_model())
    proxy.upstream.calls.clear()
    response = await ask(proxy, MINE, messages=turn())
    assert asked(proxy.upstream) == ["standard"], "the turn does not pay for the weak tier again"
    assert "x-mlx-stack-escalated-from" not in response.headers, "nothing was escalated in it"
    assert await tier_of(proxy, OTHER) == "fast", "another session is not concerned"
    assert await tier_of(proxy, MINE, model="longctx") == "longctx"
    assert await tier_of(proxy, MINE, model="gpt-4o-mini") == "fast", "nor another model's name"
    for _ in range(3):
        clock.now += 99
        assert await tier_of(proxy, MINE) == "standard"
    clock.now += 3
    assert await tier_of(proxy, MINE) == "fast", "use does not renew it"
    proxy.upstream.always(DEAD)
    checked_error(await ask(proxy, MINE, messages=turn()), 502, "all_tiers_failed")
    proxy.upstream.always(by_model())
    assert await tier_of(proxy, MINE) == "fast", "what failed is not stuck to"
