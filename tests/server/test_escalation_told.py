"""What the model was told before a server failed, it is told again; and what is kept of the end."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from mlx_stack_proxy.state.store import EventQuery
from tests.faults.catalogue import BAD_CALL, calling, good, looping_history
from tests.faults.clients import TOOLS
from tests.server.asking import ask, checked_error
from tests.server.calling import messages_of
from tests.server.climbing import DEAD, asked, by_model, three_tiers
from tests.server.conftest import StartProxy
from tests.support.replies import litellm_error
from tests.support.running_proxy import RunningProxy
from tests.support.scripted_server import Call, Reply, ScriptedServer


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


async def test_a_loops_hint_outlives_a_dead_tier(
    upstream: ScriptedServer, start_proxy: StartProxy
) -> None:
    proxy = await three_tiers(upstream, start_proxy)
    again = calling("search", '{"query": "again"}')
    upstream.always(by_model(fast=again, standard=DEAD))
    messages = [{"role": "user", "content": "Find it."}, *looping_history()]
    response = await ask(proxy, messages=messages, tools=TOOLS)
    assert response.headers["x-mlx-stack-tier"] == "longctx"
    assert asked(upstream) == ["fast", "standard", "longctx"]
    _, second, third = (messages_of(call) for call in upstream.calls)
    assert "again" in str(second[-1]) and second[-1]["role"] == "user"
    assert third == second


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


@pytest.mark.parametrize(
    "reply",
    [
        litellm_error(500, "tool use is not supported on this device; out of memory"),
        litellm_error(400, "This model does not support images."),
    ],
    ids=["a server in trouble", "not what was asked for"],
)
async def test_what_is_no_proof_is_not_learnt(
    reply: Reply, upstream: ScriptedServer, start_proxy: StartProxy
) -> None:
    proxy = await three_tiers(upstream, start_proxy, sticky_seconds=0)
    upstream.always(by_model(fast=reply))
    await ask(proxy, tools=TOOLS)
    upstream.always(by_model())
    image = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}
    for more in ({"tools": TOOLS}, {"messages": [{"role": "user", "content": [image]}]}):
        assert (await ask(proxy, **more)).headers["x-mlx-stack-tier"] == "fast"
