"""Before an id goes out that is hardly the one that is meant, the next tier is asked, once."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.server.asking import ask
from tests.server.calling import GET_ORDER, deltas, getting, messages_of
from tests.server.climbing import asked
from tests.server.conftest import StartProxy
from tests.support.replies import data, litellm_error, text_chunks, text_stream
from tests.support.scripted_server import Reply, ScriptedServer, Wait

CHAIN = {"reliability.escalation.chain": ["fast", "standard"]}
TOOLS = [GET_ORDER]
ASKED = [{"role": "user", "content": "Look up order 8874449."}]


@pytest.mark.parametrize("streamed", [False, True])
async def test_the_next_tiers_goes_out_in_its_stead(
    upstream: ScriptedServer, start_proxy: StartProxy, streamed: bool
) -> None:
    proxy = await start_proxy(CHAIN)
    upstream.will(getting("887449"), getting("8874449"))
    response = await ask(proxy, messages=ASKED, tools=TOOLS, stream=streamed)
    assert asked(upstream) == ["fast", "standard"]
    assert messages_of(upstream.calls[1]) == ASKED, "nobody tells it anything"
    assert "8874449" in response.text
    assert response.headers["x-mlx-stack-tier"] == "standard"
    assert response.headers["x-mlx-stack-escalation-reason"] == "tool_validation_failure"
    upstream.will(text_stream("Done."))
    await ask(proxy, messages=ASKED, tools=TOOLS)
    assert asked(upstream)[2:] == ["fast"], "a doubt doesn't hold the session there"


@pytest.mark.parametrize(
    "answer",
    [
        getting("887449"),
        getting("88744499"),
        text_stream("I can't help with that."),
        litellm_error(500, "no"),
        text_stream(""),
    ],
    ids=["the same", "another slip", "no call", "an error", "nothing"],
)
async def test_else_it_goes_out_as_it_is_and_is_not_asked_about_again(
    upstream: ScriptedServer, start_proxy: StartProxy, answer: Reply
) -> None:
    proxy = await start_proxy(CHAIN)
    upstream.will(getting("887449"), answer, getting("887449"))
    response = await ask(proxy, messages=ASKED, tools=TOOLS, stream=True)
    assert asked(upstream) == ["fast", "standard"]
    assert response.status_code == 200
    assert "error" not in response.text
    assert response.headers["x-mlx-stack-tier"] == "fast"
    assert "x-mlx-stack-escalated-from" not in response.headers
    (call,) = [one for delta in deltas(response) for one in delta.get("tool_calls", ())]
    assert call["function"]["arguments"] == '{"order_id": "887449"}'
    said: list[dict[str, Any]] = [
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": call["id"], "content": "not found"},
        {"role": "user", "content": "Once more."},
    ]
    await ask(proxy, messages=[*ASKED, *said], tools=TOOLS)
    assert asked(upstream)[2:] == ["fast"]


async def test_nobody_waits_for_a_tier_that_is_busy(
    upstream: ScriptedServer, start_proxy: StartProxy
) -> None:
    proxy = await start_proxy({**CHAIN, "tiers.standard.max_concurrency": 1})
    release = asyncio.Event()
    role, text, end = (data(one) for one in text_chunks("Slowly."))
    upstream.will(Reply.sse(role, text, Wait(release), end), getting("887449"))
    other = asyncio.create_task(ask(proxy, {"x-mlx-stack-tier": "standard"}))
    await upstream.next_call()
    response = await ask(proxy, messages=ASKED, tools=TOOLS)
    assert "887449" in response.text
    assert asked(upstream) == ["standard", "fast"]
    release.set()
    await other
