"""A bad call is tried again, and the client sees only what was good in the end."""

from __future__ import annotations

import asyncio

import pytest

from tests.server.asking import (
    MESSAGES,
    ask,
    checked_error,
    text_of,
)
from tests.server.calling import (
    BAD,
    CORRECTION,
    GOOD,
    MISSING,
    RULES,
    TOOLS,
    calling,
    delta,
    deltas,
    finishes,
    messages_of,
)
from tests.server.conftest import StartProxy
from tests.support.replies import (
    DONE,
    ROLE,
    TEXT,
    chunk,
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


async def test_a_retry_closes_the_response_of_the_attempt_before(
    upstream: ScriptedServer, start_proxy: StartProxy
) -> None:
    proxy = await start_proxy({"reliability.tool_validation.max_retries": 1})
    first = [data(one) for one in with_role(delta("{}", name="nope"), finish="tool_calls")]
    upstream.will(Reply.sse(*first, DONE, SILENCE), Reply.sse(ROLE, TEXT, SILENCE))
    asking = asyncio.create_task(ask(proxy, tools=TOOLS))
    assert await (await upstream.next_call()).left_within(3)
    asking.cancel()


@pytest.mark.parametrize("streams", [True, False])
async def test_a_retry_that_the_server_does_not_take(
    streams: bool, upstream: ScriptedServer, start_proxy: StartProxy
) -> None:
    """Its temperatures end at 1, say; it may be where the correction stands, so that is tried."""
    chain = ["fast", "standard"]
    proxy = await start_proxy({f"{RULES}.max_retries": 3, "reliability.escalation.chain": chain})
    refusal = litellm_error(400, "temperature: range: 0..1")
    upstream.will(calling(BAD), refusal, refusal, calling(GOOD))
    response = await ask(proxy, tools=TOOLS, stream=streams, temperature=1)
    assert response.status_code == 200
    assert response.headers["x-mlx-stack-escalation-reason"] == "tool_validation_failure"
    assert [call.json()["model"] for call in upstream.calls] == [*["fast"] * 3, "standard"]
    assert messages_of(upstream.calls[3]) == MESSAGES
    upstream.will(calling(BAD), refusal, refusal)
    last = await ask(proxy, {"x-mlx-stack-tier": "standard"}, tools=TOOLS, stream=streams)
    error = checked_error(last, 422, "tool_validation_failed")
    assert [one["status"] for one in error["attempts"]] == [200, 400, 400]


# A doubt: what may be wrong is asked about once, and then goes out

EMPTY = '{"query": ""}'
ANSWERS = {
    "the same": (calling(EMPTY), EMPTY),
    "another one": (calling(GOOD), GOOD),
    "a bad call": (calling(BAD), EMPTY),
    "an error": (litellm_error(500, "no"), EMPTY),
    "nothing": (text_stream(""), EMPTY),
}


@pytest.mark.parametrize("said", ["", "Let me look. "])
@pytest.mark.parametrize("streams", [True, False])
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
