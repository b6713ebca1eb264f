"""A tier that takes no user message behind a tool result: words of ours go into that.

Its chat template wants roles to alternate, and nobody has set its ``hint_placement``.
"""

from __future__ import annotations

import pytest

from tests.server.calling import RULES, messages_of
from tests.server.calling import calling as searching
from tests.server.conftest import StartProxy
from tests.server.counting import budget
from tests.server.looping import CHAIN, Agent, calling
from tests.server.polling import is_degraded, metric_value
from tests.support.replies import ROLE, TEXT, USAGE, data, litellm_error, text_stream
from tests.support.running_proxy import RunningProxy
from tests.support.scripted_server import Call, Reply, ScriptedServer, WhenWhole

ALTERNATE = "Conversation roles must alternate user/assistant/user/assistant"
ALONE = {CHAIN: ["fast"], "reliability.token_budget.downgrade_tier": "fast"}
NO_OPINION = {"reliability.loop_detection.second_opinion": False}
ESCALATION = "reliability.escalation"
REFUSED = litellm_error(400, ALTERNATE)


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


def refusing(refusal: Reply, otherwise: Reply | None = None) -> WhenWhole:
    """A server that takes no user message behind a tool result."""

    def answer(call: Call) -> Reply:
        refuses = roles_of(call)[-2:] == ["tool", "user"]
        return refusal if refuses else otherwise or text_stream("Done.")

    return WhenWhole(answer)


def hints_refused(capfd: pytest.CaptureFixture[str]) -> list[str]:
    """What the log has said of tiers that take words of ours elsewhere."""
    return [line for line in capfd.readouterr().err.splitlines() if '"hint_refused"' in line]


async def three_looks(proxy: RunningProxy, upstream: ScriptedServer) -> Agent:
    """An agent that is about to be told that it goes round."""
    agent = Agent(proxy)
    upstream.otherwise = calling("look")
    await agent.run(3)
    agent.follow_up(agent.responses[-1])
    return agent


@pytest.mark.parametrize("streams", [True, False])
@pytest.mark.parametrize("status", [404, 500])
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


@pytest.mark.parametrize("policy", ["warn_and_continue", "hard_stop"])
@pytest.mark.parametrize("streams", [True, False])
async def test_what_a_refusal_counts(
    streams: bool,
    policy: str,
    upstream: ScriptedServer,
    start_proxy: StartProxy,
    capfd: pytest.CaptureFixture[str],
) -> None:
    """No failure of the tier's, no token, and one line in the log."""
    rules = {f"{ESCALATION}.degrade": {"failures": 1}, **budget(policy=policy)}
    proxy = await start_proxy({**ALONE, **NO_OPINION, **rules})
    agent = await three_looks(proxy, upstream)
    upstream.otherwise = refusing(litellm_error(500, ALTERNATE))
    for _ in range(2):
        assert (await agent.turn(stream=streams)).status_code == 200
    assert not await is_degraded(proxy)
    (said,) = hints_refused(capfd)
    assert '"tier":"fast"' in said and "hint_placement: tool_result" in said
    text = (await proxy.client.get("/metrics")).text
    refused = {"tier": "fast", "result": "client_error"}
    assert metric_value(text, "mlx_stack_attempts_total", **refused) == 2
    tokens = metric_value(text, "mlx_stack_tokens_total", tier="fast", direction="input")
    assert tokens == 5 * USAGE["prompt_tokens"], "of the replies alone"


@pytest.mark.parametrize("role", ["user", "system"])
async def test_a_hint_and_a_correction(
    role: str, upstream: ScriptedServer, start_proxy: StartProxy
) -> None:
    """Once refused, nothing is said behind a result any more; and each is said only once."""
    rules = {f"{RULES}.max_retries": 1, f"{RULES}.correction_role": role}
    proxy = await start_proxy({**ALONE, **NO_OPINION, **rules})
    agent = await three_looks(proxy, upstream)

    def answer(call: Call) -> Reply:
        if roles_of(call)[-2:] == ["tool", "user"]:
            return REFUSED
        corrected = "invalid tool call" in str(messages_of(call))
        return calling("look", "other") if corrected else searching("{}", name="look")

    upstream.otherwise = WhenWhole(answer)
    last = await agent.turn()
    assert last.status_code == 200 and "other" in last.text
    assert last.headers["x-mlx-stack-attempts"] == "3"
    assert last.headers["x-mlx-stack-retries"] == "2"
    said = str(messages_of(upstream.calls[-1]))
    assert said.count("You have called look") == 1
    assert said.count("contained an invalid tool call") == 1


@pytest.mark.parametrize("streams", [True, False])
async def test_a_refusal_within_an_answer(
    streams: bool, upstream: ScriptedServer, start_proxy: StartProxy
) -> None:
    """Where the server had sent its head before it looked at its template."""
    rules = {f"{ESCALATION}.degrade": {"failures": 1}}
    proxy = await start_proxy({**ALONE, **NO_OPINION, **rules})
    agent = await three_looks(proxy, upstream)
    error = {"error": {"message": f"Error rendering prompt with jinja template: {ALTERNATE}"}}
    for refusal in (Reply.sse(data(error)), Reply.json(error)):
        upstream.otherwise = refusing(refusal)
        last = await agent.turn(stream=streams)
        assert last.status_code == 200 and "Done." in last.text
        assert last.headers["x-mlx-stack-retries"] == "1"
    assert not await is_degraded(proxy)
    upstream.otherwise = refusing(Reply.sse(ROLE, TEXT, data(error)))
    last = await agent.turn(stream=streams)
    assert ALTERNATE in last.text, "what has begun to answer took the request"
    assert await is_degraded(proxy)
