"""A tier that takes no user message behind a tool result: words of ours go into that.

Its chat template wants roles to alternate, and nobody has set its ``hint_placement``. Which errors
say so: tests/engine/test_upstream_answers.py.
"""

from __future__ import annotations

import pytest

from tests.server.calling import RULES, messages_of
from tests.server.calling import calling as searching
from tests.server.conftest import StartProxy
from tests.server.counting import budget
from tests.server.looping import CHAIN, Agent, calling
from tests.server.polling import is_degraded, metric
from tests.support.replies import ROLE, TEXT, USAGE, data, litellm_error, text_stream
from tests.support.scripted_server import Call, Reply, ScriptedServer, WhenWhole

ALTERNATE = "Conversation roles must alternate user/assistant/user/assistant"
ALONE = {
    CHAIN: ["fast"],
    "reliability.token_budget.downgrade_tier": "fast",
    "reliability.loop_detection.second_opinion": False,
    "reliability.escalation.degrade": {"failures": 1},
}


def words_follow_result(call: Call) -> bool:
    roles = [message["role"] for message in messages_of(call)]
    return roles[-2:] == ["tool", "user"]


def refusing(refusal: Reply) -> WhenWhole:
    return WhenWhole(lambda call: refusal if words_follow_result(call) else text_stream("Done."))


async def three_looks(upstream: ScriptedServer, start_proxy: StartProxy, **rules: object) -> Agent:
    """An agent that is about to be warned that it loops."""
    agent = Agent(await start_proxy({**ALONE, **rules}))
    upstream.otherwise = calling("look")
    await agent.run(3)
    agent.follow_up(agent.responses[-1])
    return agent


@pytest.mark.parametrize("policy", ["warn_and_continue", "hard_stop"])
@pytest.mark.parametrize("streams", [True, False])
async def test_a_hint(
    streams: bool,
    policy: str,
    upstream: ScriptedServer,
    start_proxy: StartProxy,
    capfd: pytest.CaptureFixture[str],
) -> None:
    """Its refusal is no failure of the tier's and counts no token; the log says it once."""
    agent = await three_looks(upstream, start_proxy, **budget(policy=policy))
    upstream.otherwise = refusing(litellm_error(500, ALTERNATE))
    for _ in range(2):
        last = await agent.turn(stream=streams)
        assert last.status_code == 200 and "Done." in last.text
        assert last.headers["x-mlx-stack-retries"] == "1"
    assert agent.header(4) == "warning;detector=repetition"
    refused, taken = upstream.calls[3:5]
    hint = messages_of(refused)[-1]
    assert hint["role"] == "user"
    result = agent.messages[-1]
    told = {**result, "content": f"{result['content']}\n\n{hint['content']}"}
    assert messages_of(taken) == [*agent.messages[:-1], told]
    assert not await is_degraded(agent.proxy)
    logged = capfd.readouterr().err.splitlines()
    (said,) = [line for line in logged if '"hint_refused"' in line]
    assert '"tier":"fast"' in said and "hint_placement: tool_result" in said
    assert (
        await metric(agent.proxy, "mlx_stack_retries_total", tier="fast", reason="client_error")
        == 2
    )
    tokens = await metric(agent.proxy, "mlx_stack_tokens_total", tier="fast", direction="input")
    assert tokens == 5 * USAGE["prompt_tokens"], "of the replies alone"


@pytest.mark.parametrize("role", ["user", "system"])
async def test_a_hint_and_a_correction(
    role: str, upstream: ScriptedServer, start_proxy: StartProxy
) -> None:
    """Once refused, nothing is said behind a result any more; and each is said only once."""
    rules = {f"{RULES}.max_retries": 1, f"{RULES}.correction_role": role}
    agent = await three_looks(upstream, start_proxy, **rules)

    def answer(call: Call) -> Reply:
        if words_follow_result(call):
            return litellm_error(400, ALTERNATE)
        corrected = "invalid tool call" in str(messages_of(call))
        return calling("look", "other") if corrected else searching("{}", name="look")

    upstream.otherwise = WhenWhole(answer)
    last = await agent.turn()
    assert last.status_code == 200 and "other" in last.text
    assert last.headers["x-mlx-stack-attempts"] == "3"
    assert last.headers["x-mlx-stack-retries"] == "2"
    said = str(messages_of(upstream.calls[-1]))
    assert said.count("Stop calling look") == 1
    assert said.count("contained an invalid tool call") == 1


async def test_a_refusal_within_an_answer(
    upstream: ScriptedServer, start_proxy: StartProxy
) -> None:
    """Where the server had sent its head before it looked at its template."""
    agent = await three_looks(upstream, start_proxy)
    error = {"error": {"message": f"Error rendering prompt with jinja template: {ALTERNATE}"}}
    for refusal in (Reply.sse(data(error)), Reply.json(error)):
        upstream.otherwise = refusing(refusal)
        last = await agent.turn(stream=True)
        assert last.status_code == 200 and "Done." in last.text
        assert last.headers["x-mlx-stack-retries"] == "1"
    assert not await is_degraded(agent.proxy)
    upstream.otherwise = refusing(Reply.sse(ROLE, TEXT, data(error)))
    last = await agent.turn(stream=True)
    assert ALTERNATE in last.text, "what has begun to answer took the request"
    assert await is_degraded(agent.proxy)
