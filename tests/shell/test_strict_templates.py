"""A tier that takes no user message behind a tool result: words of ours go into that.

Its chat template wants roles to alternate, and nobody has set its ``hint_placement``.
"""

from __future__ import annotations

import pytest

from tests.shell.asking import ask
from tests.shell.calling import CORRECTION, GOOD, RULES, deltas, messages_of
from tests.shell.calling import TOOLS as SEARCHING
from tests.shell.calling import calling as searching
from tests.shell.conftest import StartProxy
from tests.shell.looping import CHAIN, Agent, calling
from tests.shell.polling import metric_value
from tests.support.replies import litellm_error, text_stream
from tests.support.scripted_server import Call, Reply, ScriptedServer, WhenWhole

ALTERNATE = "Conversation roles must alternate user/assistant/user/assistant"
ALONE = {CHAIN: ["fast"], "reliability.token_budget.downgrade_tier": "fast"}
NO_OPINION = {"reliability.loop_detection.second_opinion": False}


def roles_of(call: Call) -> list[str]:
    return [message["role"] for message in messages_of(call)]


def strict(status: int, model: str) -> WhenWhole:
    """This model is strict, and looks three times; others look again and again."""

    def answer(call: Call) -> Reply:
        if call.json()["model"] != model:
            return calling("look")
        roles = roles_of(call)
        if roles[-2:] == ["tool", "user"]:
            return litellm_error(status, ALTERNATE)
        return calling("look") if roles.count("tool") < 3 else text_stream("Done.")

    return WhenWhole(answer)


@pytest.mark.parametrize("streams", [True, False])
@pytest.mark.parametrize("status", [400, 404, 422, 500])
async def test_a_hint(
    status: int, streams: bool, upstream: ScriptedServer, start_proxy: StartProxy
) -> None:
    upstream.otherwise = strict(status, "fast")
    proxy = await start_proxy({**ALONE, **NO_OPINION})
    agent = Agent(proxy)
    await agent.run(3)
    agent.follow_up(agent.responses[-1])
    last = await agent.turn(stream=streams)
    assert last.status_code == 200 and "Done." in last.text
    assert last.headers["x-mlx-stack-retries"] == "1"
    assert agent.header(4) == "warning;detector=repetition"
    refused, taken = upstream.calls[3:]
    assert roles_of(refused)[-1] == "user"
    hint = messages_of(refused)[-1]["content"]
    assert messages_of(taken)[:-1] == agent.messages[:-1]
    result = agent.messages[-1]
    assert messages_of(taken)[-1] == {**result, "content": f"{result['content']}\n\n{hint}"}
    text = (await proxy.client.get("/metrics")).text
    assert metric_value(text, "mlx_stack_retries_total", tier="fast", reason="client_error") == 1


@pytest.mark.parametrize("status", [400, 404])
async def test_the_hint_of_a_loop_that_another_tier_made(
    status: int, upstream: ScriptedServer, start_proxy: StartProxy
) -> None:
    upstream.otherwise = strict(status, "standard")
    agent = Agent(await start_proxy({CHAIN: ["fast", "standard"], **NO_OPINION}))
    last = await agent.run(4)
    assert last.status_code == 200
    assert last.headers["x-mlx-stack-tier"] == "standard"
    asked = [roles_of(call) for call in upstream.calls if call.json()["model"] == "standard"]
    assert [roles[-1] for roles in asked] == ["user", "tool"]


@pytest.mark.parametrize("status", [400, 404])
async def test_a_correction(status: int, upstream: ScriptedServer, start_proxy: StartProxy) -> None:
    def answer(call: Call) -> Reply:
        roles = roles_of(call)
        if roles[-2:] == ["tool", "user"]:
            return litellm_error(status, ALTERNATE)
        return searching(GOOD if "tool" in roles else '{"limit": 5}')

    upstream.otherwise = WhenWhole(answer)
    proxy = await start_proxy({**ALONE, f"{RULES}.max_retries": 1})
    response = await ask(proxy, tools=SEARCHING, stream=True)
    assert response.status_code == 200
    (call,) = [c for one in deltas(response) for c in one.get("tool_calls", ())]
    assert call["function"]["arguments"] == GOOD
    assert response.headers["x-mlx-stack-attempts"] == "3"
    result = messages_of(upstream.calls[-1])[-1]
    assert result["role"] == "tool" and CORRECTION in result["content"]


async def test_a_tier_that_takes_words_nowhere_has_the_client_s_own_answer(
    upstream: ScriptedServer, start_proxy: StartProxy
) -> None:
    """Where the fault is the client's after all, it is told so, one call later."""
    agent = Agent(await start_proxy({**ALONE, **NO_OPINION}))
    upstream.otherwise = calling("look")
    await agent.run(3)
    agent.follow_up(agent.responses[-1])
    upstream.otherwise = litellm_error(400, "no such parameter")
    last = await agent.turn()
    assert last.status_code == 400 and "no such parameter" in last.text
    assert len(upstream.calls) == 5
