"""A bad call is tried again, and the client sees only what was good in the end."""

from __future__ import annotations

import asyncio

import pytest

from tests.server.asking import (
    MESSAGES,
    NOTE,
    ask,
    checked_error,
    checked_error_body,
    payloads,
    text_of,
)
from tests.server.calling import (
    BAD,
    CORRECTION,
    GOOD,
    MISSING,
    RULES,
    SECOND,
    TOOLS,
    calling,
    delta,
    deltas,
    finishes,
    messages_of,
    note_of,
)
from tests.server.conftest import StartProxy
from tests.support.replies import (
    DONE,
    ROLE,
    TEXT,
    TOP,
    data,
    litellm_error,
    stream,
    text_stream,
    with_role,
)
from tests.support.running_proxy import RunningProxy
from tests.support.scripted_server import SILENCE, Reply, ScriptedServer


@pytest.fixture
async def proxy(start_proxy: StartProxy) -> RunningProxy:
    return await start_proxy({f"{RULES}.max_retries": 3})


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


async def test_a_retry_closes_the_response_of_the_attempt_before(
    upstream: ScriptedServer, start_proxy: StartProxy
) -> None:
    proxy = await start_proxy({"reliability.tool_validation.max_retries": 1})
    first = [data(one) for one in with_role(delta("{}", name="nope"), finish="tool_calls")]
    upstream.will(Reply.sse(*first, DONE, SILENCE), Reply.sse(ROLE, TEXT, SILENCE))
    asking = asyncio.create_task(ask(proxy, tools=TOOLS))
    assert await (await upstream.next_call()).left_within(3)
    asking.cancel()


# A doubt: what may be wrong is asked about once, and then goes out

EMPTY = '{"query": ""}'
ANSWERS = {
    "the same": (calling(EMPTY), EMPTY),
    "another one": (calling(GOOD), GOOD),
    "a bad call": (calling(BAD), EMPTY),
    "an error": (litellm_error(500, "no"), EMPTY),
    "nothing": (text_stream(""), EMPTY),
}


@pytest.mark.parametrize(("said", "streams"), [("", False), ("Let me look. ", True)])
@pytest.mark.parametrize("name", ANSWERS)
async def test_what_comes_after_a_doubt_goes_out(
    name: str, streams: bool, said: str, upstream: ScriptedServer, proxy: RunningProxy
) -> None:
    answer, wanted = ANSWERS[name]
    before = [{"content": said}] if said else []
    upstream.will(calling(EMPTY, *before), answer)
    response = await ask(proxy, tools=TOOLS, stream=streams)
    assert response.status_code == 200
    assert len(upstream.calls) == 2
    asked = str(messages_of(upstream.calls[1])[-1]["content"])
    assert "If you meant the call exactly as it is, make it again." in asked
    if streams:
        (called,) = [one for one in deltas(response) if one.get("tool_calls")]
        assert called["tool_calls"][0]["function"]["arguments"] == wanted
        assert finishes(response) == ["tool_calls"]
        assert text_of(response.content) == said
    else:
        (choice,) = response.json()["choices"]
        assert choice["message"]["tool_calls"][0]["function"]["arguments"] == wanted


# Retries after something has gone out, and what is told of them


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


# OpenAI's own client
