"""Retries after something has gone out, and what is counted and told of them."""

from __future__ import annotations

import openai
import pytest

from tests.server.asking import (
    MESSAGES,
    NOTE,
    ask,
    checked_error_body,
    payloads,
    text_of,
)
from tests.server.calling import (
    BAD,
    GOOD,
    MISSING,
    RULES,
    SECOND,
    TOOLS,
    Json,
    calling,
    delta,
    deltas,
    finishes,
    messages_of,
    note_of,
)
from tests.server.conftest import StartProxy
from tests.server.polling import metric_value
from tests.support.replies import TOP, completion, stream, text_stream, with_role
from tests.support.running_proxy import RunningProxy
from tests.support.scripted_server import Reply, ScriptedServer


@pytest.fixture
async def proxy(start_proxy: StartProxy) -> RunningProxy:
    return await start_proxy({f"{RULES}.max_retries": 3})


# After something has gone out

LOOK = {"content": "Let me look."}


async def test_after_text_a_retry_adds_its_calls(
    upstream: ScriptedServer, proxy: RunningProxy
) -> None:
    again = calling(GOOD, {"content": "Now rightly."}, id="call_2", top=SECOND)
    upstream.will(calling(BAD, LOOK), again)
    response = await ask(proxy, tools=TOOLS, stream=True)
    assert deltas(response) == [
        {"role": "assistant", "content": None},
        LOOK,
        delta(GOOD, id="call_2"),
    ]
    assert finishes(response) == ["tool_calls"]
    parts = [one for one in payloads(response.content) if one != "[DONE]"]
    assert {(one["id"], one["created"]) for one in parts} == {(TOP["id"], TOP["created"])}
    assert payloads(response.content)[-1] == "[DONE]"
    assert messages_of(upstream.calls[1])[1]["content"] == LOOK["content"], "it is told its text"
    assert response.headers["x-mlx-stack-retries"] == "0", "sent before the failure"
    note = note_of(response)
    assert (note["retries"], note["attempts"], note["tier"]) == (1, 2, "fast")


@pytest.mark.parametrize(
    ("then", "text", "finish"),
    [
        (text_stream("I can", " not."), "Let me look.\n\nI can not.", "stop"),
        (stream(with_role(delta('{"query": "quo'), finish="length")), "Let me look.", "length"),
    ],
    ids=["text goes on behind a blank line", "half a call adds nothing"],
)
async def test_after_text_a_retry_without_calls(
    then: Reply, text: str, finish: str, upstream: ScriptedServer, proxy: RunningProxy
) -> None:
    upstream.will(calling(BAD, LOOK), then)
    response = await ask(proxy, tools=TOOLS, stream=True, max_tokens=9)
    assert text_of(response.content) == text
    assert finishes(response) == [finish]


async def test_after_text_one_retry_is_all(upstream: ScriptedServer, proxy: RunningProxy) -> None:
    upstream.always(calling(BAD, LOOK))
    response = await ask(proxy, tools=TOOLS, stream=True)
    assert response.status_code == 200
    assert text_of(response.content.partition(b'data: {"error"')[0]) == "Let me look."
    *_, error, done = payloads(response.content)
    assert checked_error_body(error, "tool_validation_failed")["failures"]
    assert done == "[DONE]"
    assert finishes(response) == [], "a failure never looks like success"
    assert len(upstream.calls) == 2


ANNOUNCED = f'So: {{"name": "search", "arguments": {GOOD}}}'


async def test_a_call_that_was_announced_joins_the_words(
    upstream: ScriptedServer, proxy: RunningProxy
) -> None:
    upstream.will(text_stream(ANNOUNCED), calling(GOOD, id="call_2", top=SECOND))
    response = await ask(proxy, tools=TOOLS, stream=True)
    assert deltas(response)[1:] == [{"content": ANNOUNCED}, delta(GOOD, id="call_2")]
    assert finishes(response) == ["tool_calls"]
    assert "give it again" in str(messages_of(upstream.calls[1])[-1]["content"])
    assert note_of(response)["retries"] == 1


@pytest.mark.parametrize(
    "then",
    [text_stream(ANNOUNCED), calling(BAD), Reply(status=400)],
    ids=["the same again", "a bad call", "refused"],
)
@pytest.mark.parametrize("streams", [True, False])
async def test_words_that_announce_a_call_go_out_where_nothing_better_comes(
    streams: bool, then: Reply, upstream: ScriptedServer, start_proxy: StartProxy
) -> None:
    proxy = await start_proxy({f"{RULES}.max_retries": 1})
    upstream.will(text_stream(ANNOUNCED), then)
    response = await ask(proxy, tools=TOOLS, stream=streams)
    assert response.status_code == 200
    if streams:
        assert text_of(response.content) == ANNOUNCED
        assert finishes(response) == ["stop"]
        assert payloads(response.content)[-1] == "[DONE]"
    else:
        (choice,) = response.json()["choices"]
        assert (choice["message"]["content"], choice["finish_reason"]) == (ANNOUNCED, "stop")
    assert len(upstream.calls) == 2


async def test_nobody_waits_for_a_better_reply_than_words_that_announce_a_call(
    upstream: ScriptedServer, start_proxy: StartProxy
) -> None:
    """Nor are the other tiers asked."""
    retries = {f"{RULES}.max_retries": 3, "reliability.escalation.max_retries_before_escalate": 3}
    proxy = await start_proxy(retries)
    upstream.will(text_stream(ANNOUNCED))
    upstream.always(Reply(status=500))
    response = await ask(proxy, tools=TOOLS)
    assert response.json()["choices"][0]["message"]["content"] == ANNOUNCED
    assert response.headers["x-mlx-stack-tier"] == "fast"
    assert len(upstream.calls) == 2


async def test_committed_reasoning_limits_nothing(
    upstream: ScriptedServer, proxy: RunningProxy
) -> None:
    thinks = {"reasoning_content": "Hm."}
    again = calling(GOOD, {"reasoning_content": "Hm again."}, LOOK, id="call_2", top=SECOND)
    upstream.will(calling(BAD, thinks), calling(BAD, thinks), again)
    response = await ask(proxy, tools=TOOLS, stream=True)
    assert deltas(response) == [
        {"role": "assistant", "content": None},
        thinks,
        LOOK,
        delta(GOOD, id="call_2"),
    ]
    assert {one["id"] for one in payloads(response.content)[:-1]} == {TOP["id"]}
    assert note_of(response)["retries"] == 2


@pytest.mark.parametrize("how", ["header", "setting"])
async def test_buffered_no_failure_is_ever_seen(
    how: str, upstream: ScriptedServer, start_proxy: StartProxy
) -> None:
    mode = {"stream.mode": "buffered"} if how == "setting" else {}
    headers = {"X-MLX-Stack-Stream": "buffered"} if how == "header" else {}
    proxy = await start_proxy({f"{RULES}.max_retries": 3, **mode})
    upstream.will(*[calling(BAD, LOOK)] * 2, calling(GOOD, {"content": "So."}, top=SECOND))
    response = await ask(proxy, headers, tools=TOOLS, stream=True)
    assert text_of(response.content) == "So."
    assert response.headers["x-mlx-stack-retries"] == "2"
    assert {one["id"] for one in payloads(response.content)[:-1]} == {SECOND["id"]}
    assert NOTE not in response.content, "the headers said it all"


# What is counted and told


async def test_counters(upstream: ScriptedServer, proxy: RunningProxy) -> None:
    upstream.will(calling(BAD), calling('{"query": "x",}'))
    response = await ask(proxy, tools=TOOLS)
    assert response.headers["x-mlx-stack-repairs"] == "trailing_comma"
    said = '<tool_call>{"name": "search", "arguments": {"query": "x"}}</tool_call>'
    upstream.will(text_stream(said))
    response = await ask(proxy, tools=TOOLS)
    assert response.headers["x-mlx-stack-repairs"] == "rescued"
    text = (await proxy.client.get("/metrics")).text

    def count(name: str, **labels: str) -> float | None:
        return metric_value(text, f"mlx_stack_{name}_total", **labels)

    assert count("tool_call_failures", tier="fast", kind="missing_required") == 1
    assert count("retries", tier="fast", reason="tool_validation_failure") == 1
    assert count("attempts", tier="fast", result="tool_validation_failure") == 1
    assert count("attempts", tier="fast", result="ok") == 2
    assert count("tool_call_repairs", kind="trailing_comma") == 1
    assert count("rescued_tool_calls", format="hermes_json") == 1
    assert count("requests", tier="fast", outcome="ok") == 2
    assert count("stage_faults", stage="tool_validation") == 0


async def test_repairs_of_a_failed_attempt_are_not_told(
    upstream: ScriptedServer, proxy: RunningProxy
) -> None:
    two = with_role(delta('{"query": "x",}'), delta(BAD, id="b", index=1), finish="tool_calls")
    upstream.will(stream(two), calling(GOOD))
    response = await ask(proxy, tools=TOOLS)
    assert "x-mlx-stack-repairs" not in response.headers


async def test_a_repair_after_the_headers_is_told_in_the_last_comment(
    upstream: ScriptedServer, proxy: RunningProxy
) -> None:
    upstream.will(calling('{"query": "x",}', LOOK))
    response = await ask(proxy, tools=TOOLS, stream=True)
    assert note_of(response)["repairs"] == "trailing_comma"
    assert deltas(response)[-1] == delta('{"query": "x"}')


async def test_the_older_form(upstream: ScriptedServer, proxy: RunningProxy) -> None:
    upstream.will(calling(BAD), calling(GOOD))
    functions = [one["function"] for one in TOOLS]
    response = await ask(proxy, functions=functions)
    message = response.json()["choices"][0]["message"]
    assert message["function_call"] == {"name": "search", "arguments": GOOD}
    assert response.headers["x-mlx-stack-retries"] == "1"


async def test_an_upstream_that_does_not_stream(
    upstream: ScriptedServer, proxy: RunningProxy
) -> None:
    def whole(arguments: str) -> Reply:
        function = {"name": "search", "arguments": arguments}
        said = [{"id": "call_1", "type": "function", "function": function}]
        return Reply.json(completion({"content": None, "tool_calls": said}, "tool_calls"))

    upstream.will(whole(BAD), whole('{"query": "x",}'))
    response = await ask(proxy, tools=TOOLS, stream=True)
    assert response.headers["x-mlx-stack-retries"] == "1"
    (called,) = [one for one in deltas(response) if one.get("tool_calls")]
    assert called["tool_calls"][0]["function"]["arguments"] == '{"query": "x"}'
    assert finishes(response) == ["tool_calls"]


# OpenAI's own client


@pytest.mark.parametrize("flowed", [[], [LOOK]], ids=["alone", "after text"])
async def test_the_sdk_sees_an_intact_stream(
    flowed: list[Json], upstream: ScriptedServer, sdk: openai.AsyncOpenAI
) -> None:
    upstream.will(calling(BAD, *flowed), calling('{"query": "x",}', *flowed, id="call_2"))
    seen = [
        one
        async for one in await sdk.chat.completions.create(
            model="fast", messages=MESSAGES, tools=TOOLS, stream=True
        )
    ]
    assert len({one.id for one in seen}) == 1
    choices = [choice for one in seen for choice in one.choices]
    assert [one.finish_reason for one in choices if one.finish_reason] == ["tool_calls"]
    said = "".join(one.delta.content or "" for one in choices)
    assert said == "".join(one["content"] for one in flowed)
    (call,) = [call for one in choices for call in one.delta.tool_calls or ()]
    assert (call.index, call.id, call.type) == (0, "call_2", "function")
    assert (call.function.name, call.function.arguments) == ("search", '{"query": "x"}')


async def test_the_sdk_gets_an_error_it_can_show(
    upstream: ScriptedServer, sdk: openai.AsyncOpenAI
) -> None:
    upstream.always(calling(BAD))
    with pytest.raises(openai.UnprocessableEntityError) as caught:
        await sdk.chat.completions.create(model="fast", messages=MESSAGES, tools=TOOLS)
    assert caught.value.type == "tool_validation_failed"
    assert MISSING in caught.value.message
    assert len(upstream.calls) == 4, "the SDK does not ask again"
