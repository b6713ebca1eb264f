"""A bad call is tried again, and the client sees only what was good in the end.

When it is tried again, and what follows at last: tests/driver/test_next_step_table.py.
What a retry says: tests/engine/test_correction.py.
"""

from __future__ import annotations

import pytest

from tests.server.asking import MESSAGES, NOTE, ask, checked_error, payloads, text_of
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
from tests.support.replies import TOP, stream, text_stream, with_role
from tests.support.running_proxy import RunningProxy
from tests.support.scripted_server import Reply


@pytest.fixture
async def proxy(start_proxy: StartProxy) -> RunningProxy:
    return await start_proxy({f"{RULES}.max_retries": 3, "server.allow_bypass": True})


@pytest.mark.parametrize("streams", [True, False])
async def test_a_retry_heals_and_nothing_of_the_failure_is_seen(
    streams: bool, proxy: RunningProxy
) -> None:
    """What was repaired of the failed reply is not told either."""
    two = with_role(delta('{"query": "x",}'), delta(BAD, id="b", index=1), finish="tool_calls")
    proxy.upstream.will(stream(two), calling(GOOD, id="call_2"))
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


async def test_what_a_retry_asks_and_how_it_ends(proxy: RunningProxy) -> None:
    limits = [f'{{"limit": {number}}}' for number in range(4)]  # the same again changes the form
    proxy.upstream.will(*map(calling, limits))
    response = await ask(proxy, tools=TOOLS)
    error = checked_error(response, 422, "tool_validation_failed")
    assert error["failures"] == [{"tool": "search", "error": MISSING}]
    assert [one["reason"] for one in error["attempts"]] == ["tool_validation_failure"] * 4
    first, *retries = proxy.upstream.calls
    assert messages_of(first) == MESSAGES
    assert "temperature" not in first.json()
    assert [one.json()["temperature"] for one in retries] == [0.1, 0.2, 0.3]
    # Each is made anew from the client's own messages: failures don't pile up.
    for failed, retry in zip(limits, retries, strict=False):
        user, said, result, last = messages_of(retry)
        assert user == MESSAGES[0]
        assert said["tool_calls"][0]["function"] == {"name": "search", "arguments": failed}
        assert result == {"role": "tool", "tool_call_id": "call_1", "content": f"Error: {MISSING}."}
        assert last["content"].startswith(CORRECTION)
    proxy.upstream.always(calling(BAD))
    passed = await ask(proxy, {"X-MLX-Stack-Bypass": "validation"}, tools=TOOLS)
    assert passed.status_code == 200


# A doubt: what may be wrong is asked about once, and then goes out


EMPTY = '{"query": ""}'
LOOK = {"content": "Let me look."}


@pytest.mark.parametrize(
    ("answer", "wanted"), [(calling(GOOD), GOOD), (text_stream(""), EMPTY)], ids=["call", "nothing"]
)
async def test_what_comes_after_a_doubt_goes_out(
    answer: Reply, wanted: str, proxy: RunningProxy
) -> None:
    proxy.upstream.will(calling(EMPTY, LOOK), answer)
    response = await ask(proxy, tools=TOOLS, stream=True)
    assert response.status_code == 200
    assert len(proxy.upstream.calls) == 2
    asked = str(messages_of(proxy.upstream.calls[1])[-1]["content"])
    assert "Make it again if it is right." in asked
    (called,) = [one for one in deltas(response) if one.get("tool_calls")]
    assert called["tool_calls"][0]["function"]["arguments"] == wanted
    assert finishes(response) == ["tool_calls"]
    assert text_of(response.content) == LOOK["content"]


ANNOUNCED = f'So: {{"name": "search", "arguments": {GOOD}}}'


@pytest.mark.parametrize(
    ("then", "called", "finish"),
    [
        (calling(GOOD, id="call_2", top=SECOND), [delta(GOOD, id="call_2")], "tool_calls"),
        (calling(BAD), [], "stop"),
    ],
    ids=["it comes", "nothing better comes"],
)
async def test_a_call_that_was_announced_joins_the_words(
    then: Reply, called: list[object], finish: str, proxy: RunningProxy
) -> None:
    proxy.upstream.will(text_stream(ANNOUNCED), then)
    response = await ask(proxy, tools=TOOLS, stream=True)
    assert deltas(response)[1:] == [{"content": ANNOUNCED}, *called]
    assert finishes(response) == [finish]
    assert "Make the call, or answer." in str(messages_of(proxy.upstream.calls[1])[-1]["content"])
    assert note_of(response)["retries"] == 1
    assert len(proxy.upstream.calls) == 2


# Retries after something has gone out, and what is told of them


THINKS = {"reasoning_content": "Hm."}


async def test_after_text_a_retry_adds_its_calls(proxy: RunningProxy) -> None:
    again = calling('{"query": "quokka",}', THINKS, {"content": "Now rightly."}, top=SECOND)
    proxy.upstream.will(calling(BAD, THINKS, LOOK), again)
    response = await ask(proxy, tools=TOOLS, stream=True)
    assert deltas(response) == [
        {"role": "assistant", "content": None},
        THINKS,
        LOOK,
        delta(GOOD),
    ]
    assert finishes(response) == ["tool_calls"]
    parts = [one for one in payloads(response.content) if one != "[DONE]"]
    assert {(one["id"], one["created"]) for one in parts} == {(TOP["id"], TOP["created"])}
    assert payloads(response.content)[-1] == "[DONE]"
    assert messages_of(proxy.upstream.calls[1])[1]["content"] == LOOK["content"], (
        "it is told its text"
    )
    assert response.headers["x-mlx-stack-retries"] == "0", "sent before the failure"
    note = note_of(response)
    assert (note["retries"], note["attempts"], note["tier"]) == (1, 2, "fast")
    assert note["repairs"] == "trailing_comma"


@pytest.mark.parametrize(
    ("then", "text", "finish"),
    [
        (text_stream("I can", " not."), "Let me look.\n\nI can not.", "stop"),
        (stream(with_role(delta('{"query": "quo'), finish="length")), "Let me look.", "length"),
    ],
    ids=["text goes on behind a blank line", "half a call adds nothing"],
)
async def test_after_text_a_retry_without_calls(
    then: Reply, text: str, finish: str, proxy: RunningProxy
) -> None:
    proxy.upstream.will(calling(BAD, LOOK), then)
    response = await ask(proxy, tools=TOOLS, stream=True, max_tokens=9)
    assert text_of(response.content) == text
    assert finishes(response) == [finish]


async def test_buffered_no_failure_is_ever_seen(start_proxy: StartProxy) -> None:
    proxy = await start_proxy({f"{RULES}.max_retries": 3, "stream.mode": "buffered"})
    proxy.upstream.will(*[calling(BAD, LOOK)] * 2, calling(GOOD, {"content": "So."}, top=SECOND))
    response = await ask(proxy, tools=TOOLS, stream=True)
    assert text_of(response.content) == "So."
    assert response.headers["x-mlx-stack-retries"] == "2"
    assert {one["id"] for one in payloads(response.content)[:-1]} == {SECOND["id"]}
    assert NOTE not in response.content, "the headers said it all"


async def test_the_older_form(proxy: RunningProxy) -> None:
    proxy.upstream.will(calling(BAD), calling(GOOD))
    functions = [one["function"] for one in TOOLS]
    response = await ask(proxy, functions=functions)
    message = response.json()["choices"][0]["message"]
    assert message["function_call"] == {"name": "search", "arguments": GOOD}
    assert response.headers["x-mlx-stack-retries"] == "1"
