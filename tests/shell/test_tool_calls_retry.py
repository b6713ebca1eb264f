"""A bad call is tried again, and the client sees only what was good in the end."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

import httpx
import openai
import pytest

from tests.shell.asking import (
    MESSAGES,
    NOTE,
    ask,
    checked_error,
    checked_error_body,
    payloads,
    text_of,
)
from tests.shell.conftest import StartProxy
from tests.shell.polling import metric_value
from tests.support.replies import TOP, chunk, completion, stream, text_stream, with_role
from tests.support.running_proxy import RunningProxy
from tests.support.scripted_server import Call, Reply, ScriptedServer
from tests.tool_calls.calls import RUN, SEARCH, WRITE

Json = dict[str, Any]
TOOLS = [SEARCH, WRITE, RUN]
RULES = "reliability.tool_validation"
GOOD = '{"query": "quokka"}'
MISSING = 'missing required field "query" in function "search"'
CORRECTION = f"""\
Your previous response contained an invalid tool call. The error was:
{MISSING}.
You must respond with valid JSON matching the tool schema exactly.
Available tools: search, write_file, run_terminal_command."""


@pytest.fixture
async def proxy(start_proxy: StartProxy) -> RunningProxy:
    return await start_proxy({f"{RULES}.max_retries": 3})


def delta(arguments: str, name: str = "search", id: str = "call_1", index: int = 0) -> Json:
    function = {"name": name, "arguments": arguments}
    return {"tool_calls": [{"index": index, "id": id, "type": "function", "function": function}]}


def calling(arguments: str, *before: Json, id: str = "call_1", top: Json | None = None) -> Reply:
    """A stream that calls `search`, after these deltas."""
    chunks = with_role(*before, delta(arguments, id=id), finish="tool_calls")
    return stream([{**one, **(top or {})} for one in chunks])


BAD = '{"limit": 5}'
SECOND = {"id": "chatcmpl-second", "created": 1_790_000_000}


def deltas(response: httpx.Response) -> list[Json]:
    """What a stream said, chunk by chunk, without its empty deltas."""
    found = [
        choice["delta"]
        for payload in payloads(response.content)
        if payload != "[DONE]"
        for choice in payload.get("choices", ())
    ]
    return [one for one in found if any(one.values())]


def finishes(response: httpx.Response) -> list[str]:
    return [
        choice["finish_reason"]
        for payload in payloads(response.content)
        if payload != "[DONE]"
        for choice in payload.get("choices", ())
        if choice["finish_reason"]
    ]


def note_of(response: httpx.Response) -> Json:
    start = response.content.index(NOTE) + len(NOTE)
    note: Json = json.loads(response.content[start : response.content.index(b"\n\n", start)])
    return note


def messages_of(call: Call) -> list[Json]:
    messages: list[Json] = call.json()["messages"]
    return messages


@pytest.mark.parametrize("streams", [True, False])
async def test_a_retry_heals_and_nothing_of_the_failure_is_seen(
    streams: bool, upstream: ScriptedServer, proxy: RunningProxy
) -> None:
    upstream.will(calling(BAD), calling(GOOD, id="call_2"))
    response = await ask(proxy, tools=TOOLS, stream=streams)
    assert response.status_code == 200
    assert response.headers["x-mlx-stack-retries"] == "1"
    assert response.headers["x-mlx-stack-attempts"] == "2"
    assert response.headers["x-mlx-stack-tier"] == "fast"
    assert "x-mlx-stack-repairs" not in response.headers
    assert b"limit" not in response.content
    assert b"Your previous" not in response.content
    if streams:
        assert deltas(response) == [
            {"role": "assistant", "content": None},
            delta(GOOD, id="call_2"),
        ]
        assert finishes(response) == ["tool_calls"]
    else:
        (choice,) = response.json()["choices"]
        assert choice["message"]["tool_calls"][0]["function"]["arguments"] == GOOD


async def test_what_a_retry_asks(upstream: ScriptedServer, proxy: RunningProxy) -> None:
    upstream.will(*[calling(BAD)] * 3, calling(GOOD))
    response = await ask(proxy, tools=TOOLS)
    assert response.headers["x-mlx-stack-retries"] == "3"
    first, *retries = upstream.calls
    assert messages_of(first) == MESSAGES
    assert "temperature" not in first.json()
    assert [one.json()["temperature"] for one in retries] == [0.1, 0.2, 0.3]
    for retry in retries:  # each anew from the client's own messages: failures don't pile up
        user, said, result, last = messages_of(retry)
        assert user == MESSAGES[0]
        assert said["tool_calls"][0]["function"] == {"name": "search", "arguments": BAD}
        assert result == {"role": "tool", "tool_call_id": "call_1", "content": f"Error: {MISSING}."}
        assert last["content"].startswith(CORRECTION)
    assert [messages_of(one)[-1]["content"] == CORRECTION for one in retries] == [True, True, False]
    assert "must match" in messages_of(retries[-1])[-1]["content"]


async def test_a_client_that_fixed_the_seed_keeps_its_sampling(
    upstream: ScriptedServer, proxy: RunningProxy
) -> None:
    upstream.will(calling(BAD), calling(GOOD))
    await ask(proxy, tools=TOOLS, seed=7, temperature=0.5)
    assert [one.json()["temperature"] for one in upstream.calls] == [0.5, 0.5]


async def test_a_lost_call_gets_only_the_correction(
    upstream: ScriptedServer, proxy: RunningProxy
) -> None:
    upstream.will(stream(with_role(finish="tool_calls")), calling(GOOD))
    response = await ask(proxy, tools=TOOLS)
    assert response.headers["x-mlx-stack-retries"] == "1"
    (only,) = messages_of(upstream.calls[1])
    assert only["content"].startswith(f"{MESSAGES[0]['content']}\n\nYour previous response")
    assert "could not be read" in only["content"]


async def test_without_correction_the_same_is_asked_again(
    upstream: ScriptedServer, start_proxy: StartProxy
) -> None:
    proxy = await start_proxy({f"{RULES}.max_retries": 1, f"{RULES}.retry_with_correction": False})
    upstream.will(calling(BAD), calling(GOOD))
    await ask(proxy, tools=TOOLS)
    assert [messages_of(one) for one in upstream.calls] == [MESSAGES, MESSAGES]
    assert upstream.calls[1].json()["temperature"] == 0.1


# When it is not to be


@pytest.mark.parametrize("streams", [True, False])
async def test_exhausted(streams: bool, upstream: ScriptedServer, proxy: RunningProxy) -> None:
    upstream.always(calling(BAD))
    response = await ask(proxy, tools=TOOLS, stream=streams)
    error = checked_error(response, 422, "tool_validation_failed")
    assert error["failures"] == [{"tool": "search", "error": MISSING}]
    assert error["last_response"]["tool_calls"][0]["function"]["arguments"] == BAD
    assert [one["reason"] for one in error["attempts"]] == ["tool_validation_failure"] * 4
    assert response.headers["x-mlx-stack-attempts"] == "4"
    assert len(upstream.calls) == 4


async def test_return_last(upstream: ScriptedServer, start_proxy: StartProxy) -> None:
    proxy = await start_proxy({f"{RULES}.max_retries": 1, f"{RULES}.on_exhausted": "return_last"})
    upstream.will(calling('{"limit": 4}'), calling(BAD))
    response = await ask(proxy, tools=TOOLS, stream=True)
    assert response.status_code == 200
    assert deltas(response)[1:] == [delta(BAD)]
    assert response.headers["x-mlx-stack-retries"] == "1"


@pytest.mark.parametrize(
    ("changes", "calls"),
    [
        ({f"{RULES}.max_retries": 0}, 1),
        ({f"{RULES}.max_retries": 2}, 3),
        ({f"{RULES}.max_retries": 9, "reliability.escalation.max_attempts": 2}, 2),
        ({f"{RULES}.max_retries": 9, "reliability.escalation.exchange_timeout": 1e-9}, 1),
    ],
    ids=["none", "two", "max_attempts", "exchange_timeout"],
)
async def test_the_bounds_of_an_exchange(
    changes: Json, calls: int, upstream: ScriptedServer, start_proxy: StartProxy
) -> None:
    proxy = await start_proxy(changes)
    upstream.always(calling(BAD))
    checked_error(await ask(proxy, tools=TOOLS), 422, "tool_validation_failed")
    assert len(upstream.calls) == calls


async def test_switched_off_or_bypassed_it_passes(
    upstream: ScriptedServer, start_proxy: StartProxy
) -> None:
    upstream.always(calling(BAD))
    proxy = await start_proxy({f"{RULES}.enabled": False})
    assert (await ask(proxy, tools=TOOLS)).status_code == 200
    proxy = await start_proxy({"server.allow_bypass": True})
    assert (await ask(proxy, tools=TOOLS)).status_code == 422
    passed = await ask(proxy, {"X-MLX-Stack-Bypass": "validation"}, tools=TOOLS)
    assert passed.status_code == 200


async def test_one_bad_choice_of_two(upstream: ScriptedServer, proxy: RunningProxy) -> None:
    def both(second: str) -> Reply:
        return stream(
            [
                chunk(delta(GOOD), index=0),
                chunk(delta(second), index=1),
                chunk({}, "tool_calls", index=0),
                chunk({}, "tool_calls", index=1),
            ]
        )

    upstream.will(both(BAD), both('{"query": "wombat"}'))
    response = await ask(proxy, tools=TOOLS, n=2, stream=True)
    assert response.headers["x-mlx-stack-retries"] == "1"
    assert b"limit" not in response.content
    assert finishes(response) == ["tool_calls", "tool_calls"]


async def test_a_reply_that_misses_its_format(
    upstream: ScriptedServer, proxy: RunningProxy
) -> None:
    upstream.will(text_stream("Sure", "!"), text_stream('{"a": ', "1}"))
    wanted = {"type": "json_object"}
    response = await ask(proxy, response_format=wanted, stream=True)
    assert text_of(response.content) == '{"a": 1}'
    assert response.headers["x-mlx-stack-retries"] == "1"
    (only,) = messages_of(upstream.calls[1])
    assert "The response was: Sure!" in only["content"]


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


async def test_after_text_a_retry_without_calls_goes_on_behind_a_blank_line(
    upstream: ScriptedServer, proxy: RunningProxy
) -> None:
    upstream.will(calling(BAD, LOOK), text_stream("I can", " not."))
    response = await ask(proxy, tools=TOOLS, stream=True)
    assert text_of(response.content) == "Let me look.\n\nI can not."
    assert finishes(response) == ["stop"]


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
    assert count("stage_faults", stage="tool_validation") is None


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


@pytest.fixture
async def sdk(proxy: RunningProxy) -> AsyncIterator[openai.AsyncOpenAI]:
    async with openai.AsyncOpenAI(base_url=f"{proxy.url}/v1", api_key="local") as client:
        yield client


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
