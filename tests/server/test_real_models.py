"""What small real models do: end after a tool's result without a word, repeat our own words."""

from __future__ import annotations

from typing import Any

import pytest

from mlx_stack_proxy.driver.rules import GO_ON
from tests.server.asking import MESSAGES, ask, text_of
from tests.server.calling import BAD, CORRECTION, RULES, TOOLS, calling, finishes, messages_of
from tests.server.conftest import StartProxy
from tests.server.looping import CHAIN, Agent
from tests.server.looping import calling as looking
from tests.support.messages import called, gave, tool_call
from tests.support.replies import text_stream
from tests.support.running_proxy import RunningProxy
from tests.support.scripted_server import Reply

Json = dict[str, Any]
AFTER_RESULT = [*MESSAGES, called(tool_call("call_1", "search")), gave("call_1", "Nothing found.")]
NOTHING = text_stream("")


@pytest.fixture
async def proxy(start_proxy: StartProxy) -> RunningProxy:
    retries = {"reliability.escalation.max_retries_before_escalate": 1, f"{RULES}.max_retries": 3}
    return await start_proxy({CHAIN: ["fast", "standard"], **retries})


async def test_silence_after_a_result_is_asked_once_more(proxy: RunningProxy) -> None:
    proxy.upstream.will(NOTHING, text_stream("There is nothing."))
    response = await ask(proxy, messages=AFTER_RESULT, tools=TOOLS, stream=True)
    assert text_of(response.content) == "There is nothing."
    assert messages_of(proxy.upstream.calls[1])[-1] == {"role": "user", "content": GO_ON}


async def test_silence_of_two_tiers_after_a_result_is_delivered(proxy: RunningProxy) -> None:
    proxy.upstream.will(NOTHING, NOTHING, NOTHING)
    response = await ask(proxy, messages=AFTER_RESULT, tools=TOOLS, stream=True)
    assert response.status_code == 200
    assert finishes(response) == ["stop"]
    assert text_of(response.content) == ""
    assert [call.json()["model"] for call in proxy.upstream.calls] == ["fast", "fast", "standard"]


@pytest.mark.parametrize(
    ("messages", "reply"),
    [(MESSAGES, NOTHING), (AFTER_RESULT, text_stream("", usage=False))],
    ids=["elsewhere", "without a usage of the server's own"],
)
async def test_other_silence_stays_an_error(
    messages: list[Json], reply: Reply, proxy: RunningProxy
) -> None:
    proxy.upstream.will(*[reply] * 4)
    response = await ask(proxy, messages=messages, tools=TOOLS, stream=True)
    assert response.status_code == 502


async def test_a_silent_second_opinion_says_that_the_call_is_not_meant(proxy: RunningProxy) -> None:
    proxy.upstream.will(looking("look"), looking("look"), NOTHING, NOTHING)
    agent = Agent(proxy)
    response = await agent.run(2)
    assert response.status_code == 200
    assert finishes(response) == ["stop"]
    assert "tool_calls" not in response.content.decode()
    assert [call.json()["model"] for call in proxy.upstream.calls] == [
        *("fast", "fast", "standard", "standard")
    ]


OURS = [f"{word} " for word in CORRECTION.splitlines()[2].split()]


@pytest.mark.parametrize("streams", [True, False])
@pytest.mark.parametrize(
    "parroted",
    [
        OURS,
        ["<tool_", "response>\n", *OURS, "\n</tool_", "response>"],
        ["<start_of", "_turn>\n", *OURS, "\n<end_of", "_turn>"],
    ],
    ids=["bare", "as a made-up result", "in a template's marks"],
)
async def test_our_own_words_are_no_answer(
    parroted: list[str], streams: bool, proxy: RunningProxy
) -> None:
    proxy.upstream.will(calling(BAD), text_stream(*parroted), text_stream("Done."))
    response = await ask(proxy, tools=TOOLS, stream=streams)
    assert response.status_code == 200
    assert b"matching" not in response.content
    assert messages_of(proxy.upstream.calls[2]) == MESSAGES


async def test_a_result_that_the_model_made_up_is_asked_about(proxy: RunningProxy) -> None:
    made_up = "<tool_response>\n3,Cyd\n</tool_response>"
    proxy.upstream.will(text_stream(made_up), text_stream("It is Cyd."))
    response = await ask(proxy, messages=AFTER_RESULT, tools=TOOLS)
    assert response.json()["choices"][0]["message"]["content"] == "It is Cyd."
    assert [call.json()["model"] for call in proxy.upstream.calls] == ["fast", "standard"]


async def test_what_only_begins_with_our_words_flows(proxy: RunningProxy) -> None:
    said = "You must respond with patience."
    proxy.upstream.will(calling(BAD), text_stream(*(f"{word} " for word in said.split())))
    response = await ask(proxy, tools=TOOLS, stream=True)
    assert text_of(response.content).strip() == said
    assert len(proxy.upstream.calls) == 2


async def test_a_hint_is_no_answer_either(proxy: RunningProxy) -> None:
    hint = "Use that result, call something else, or give the final answer."
    calls = [looking("look")] * 5  # the second opinions included
    proxy.upstream.will(*calls[:4], text_stream(hint), text_stream("It is x."))
    agent = Agent(proxy)
    response = await agent.run(4)
    told = [call for call in proxy.upstream.calls if "Stop calling" in str(call.json()["messages"])]
    assert text_of(response.content) == "It is x."
    assert told == proxy.upstream.calls[-2:-1]
