"""Streams with tools offered: prose flows at once, calls written as text come out as calls."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import openai
import pytest

from tests.server.asking import CHAT, MESSAGES, WITH_USAGE, ask, body, text_of, without_notes
from tests.server.calling import delta, deltas
from tests.support.replies import (
    DONE,
    USAGE,
    chunk,
    data,
    stream,
    stream_bytes,
    text_chunks,
    text_stream,
    with_role,
)
from tests.support.running_proxy import RunningProxy
from tests.support.scripted_server import Reply, ScriptedServer, Wait
from tests.tool_validation.calls import SEARCH
from tests.tool_validation.test_text_samples import SAMPLES, SCHEMAS

Json = dict[str, Any]
TOOLS = [
    {"type": "function", "function": {"name": name, "parameters": schema}}
    for name, schema in SCHEMAS.items()
]
CALL = '<tool_call>{"name": "search", "arguments": {"query": "x"}}</tool_call>'


@pytest.mark.parametrize(
    ("first", "rest", "said"),
    [
        ({"content": "Sum: 1 < 2, a[0] is {1}, `x` "}, ["é 🎉"], "é 🎉"),
        ({"content": "# Title\n\n- one"}, ["\n| a |\n|---|"], "\n| a |\n|---|"),
        ({"reasoning_content": f"I could {CALL}"}, ["No."], "No."),
        ({"content": "Let me look. "}, [CALL[:9], CALL[9:]], ""),
    ],
    ids=["prose", "markdown", "reasoning", "text before a call"],
)
async def test_what_is_no_call_does_not_wait_for_the_next_chunk(
    first: Json, rest: list[str], said: str, upstream: ScriptedServer, proxy: RunningProxy
) -> None:
    event = asyncio.Event()
    one = chunk({"role": "assistant", **first})
    last = [*({**chunk({"content": text}), "usage": USAGE} for text in rest), chunk({}, "stop")]
    usage_in_every_chunk = {**one, "usage": USAGE}
    upstream.will(Reply.sse(data(usage_in_every_chunk), Wait(event), *map(data, last), DONE))
    asked = body(tools=[SEARCH], **WITH_USAGE)
    async with proxy.client.stream("POST", CHAT, json=asked) as response:
        parts = response.aiter_raw()
        came = await anext(parts)
        assert json.loads(came.removeprefix(b"data: "))["choices"] == one["choices"]
        event.set()
        after = b"".join([part async for part in parts])
    assert text_of(after) == said
    assert after.count(b'"tool_calls":[') == (not said)


@pytest.mark.parametrize(
    "texts",
    [
        ("if a < b and", " c > d:", " a[0] = {1}"),
        ("<b>bold</b>", " and <", "i>so</i>"),
        ("{", '"a": 1', "} ", "was the answer"),
        ("```py", "thon\n", "x = {}\n```", "\nThat is all."),
        ("Write <tool>", " and <tool_cal"),
        ("   \n ", " blanks"),
    ],
    ids=str,
)
async def test_what_only_looks_like_a_call_goes_out_as_it_came(
    texts: tuple[str, ...], upstream: ScriptedServer, proxy: RunningProxy
) -> None:
    whole = stream_bytes(text_chunks(*texts))
    upstream.will(Reply.sse(whole), Reply.sse(whole))
    response = await ask(proxy, tools=[SEARCH], **WITH_USAGE)
    assert without_notes(response.content) == whole
    response = await ask(proxy, tools=[SEARCH])
    message = response.json()["choices"][0]["message"]
    assert (message["content"], "tool_calls" in message) == ("".join(texts), False)


@pytest.mark.parametrize(
    ("name", "before", "said"),
    [
        ("hermes_json", "I look it up.\n", "I look it up.\n"),  # it ends with its tag,
        ("react", "I look it up.\n", "I look it up.\nThought: look it up.\n"),  # or the reply,
        ("json_fence", "", ""),  # or where nothing but it may stand
        ("bare_json", "", ""),
    ],
)
async def test_a_call_written_as_text_comes_out_as_a_real_call(
    name: str, before: str, said: str, upstream: ScriptedServer, sdk: openai.AsyncOpenAI
) -> None:
    text = SAMPLES[name][0]
    upstream.will(text_stream(before, *(text[at : at + 4] for at in range(0, len(text), 4))))
    seen = [
        choice
        async for one in await sdk.chat.completions.create(
            model="fast",
            messages=MESSAGES,
            tools=TOOLS,  # type: ignore[arg-type]
            stream=True,
        )
        for choice in one.choices
    ]
    (call,) = [call for choice in seen for call in choice.delta.tool_calls or ()]
    assert (call.index, call.type) == (0, "function")
    assert call.id
    assert call.function is not None
    assert call.function.name == "find_book"
    assert json.loads(call.function.arguments or "") == {"title": "Momo", "year": 1973}
    assert [one.finish_reason for one in seen if one.finish_reason] == ["tool_calls"]
    assert "".join(one.delta.content or "" for one in seen) == said


async def test_several_calls_and_text_around_them(
    upstream: ScriptedServer, sdk: openai.AsyncOpenAI
) -> None:
    upstream.will(text_stream("Both.\n", CALL, "\n", CALL.replace("x", "y"), "\nDone."))
    reply = await sdk.chat.completions.create(model="fast", messages=MESSAGES, tools=[SEARCH])
    (choice,) = reply.choices
    calls = choice.message.tool_calls or []
    assert [json.loads(call.function.arguments)["query"] for call in calls] == ["x", "y"]
    assert len({call.id for call in calls}) == 2
    assert (choice.message.content or "").split() == ["Both.", "Done."]
    assert choice.finish_reason == "tool_calls"


@pytest.mark.parametrize("streamed", [False, True], ids=["whole", "streamed"])
async def test_arguments_that_came_as_an_object_go_out_as_its_text(
    streamed: bool, upstream: ScriptedServer, proxy: RunningProxy
) -> None:
    """Ollama's native spelling: every SDK expects a string there."""
    call = delta("", id="call_1")
    call["tool_calls"][0]["function"]["arguments"] = {"query": "quokka"}
    upstream.will(stream(with_role(call, finish="tool_calls")))
    response = await ask(proxy, tools=[SEARCH], stream=streamed)
    if streamed:
        calls = [one["tool_calls"][0] for one in deltas(response) if "tool_calls" in one]
        arguments = "".join(call["function"]["arguments"] for call in calls)
    else:
        message = response.json()["choices"][0]["message"]
        arguments = message["tool_calls"][0]["function"]["arguments"]
    assert json.loads(arguments) == {"query": "quokka"}
    assert response.headers.get("x-mlx-stack-repairs", "arguments_not_text") == "arguments_not_text"


def _called(query: str, **more: Any) -> dict[str, Any]:
    function = {"name": "search", "arguments": json.dumps({"query": query})}
    return {"type": "function", "function": function, **more}


def _pieces_with_name() -> list[dict[str, Any]]:
    whole = _called("x", id="a", index=0)
    text = whole["function"]["arguments"]
    cut = [{**whole["function"], "arguments": part} for part in (text[:5], text[5:])]
    return [{"tool_calls": [{**whole, "function": function}]} for function in cut]


ODD = {
    "index from one": ([{"tool_calls": [_called("x", id="a", index=1)]}], ["x"]),
    "name and id again": (_pieces_with_name(), ["x"]),
    "no index": ([{"tool_calls": [_called("x", id="a"), _called("y", id="b")]}], ["x", "y"]),
    "no type": ([{"tool_calls": [_called("x", id="a", index=0, type=None)]}], ["x"]),
    # LiteLLM numbers what has no index anew in each chunk.
    "one index for all": (
        [{"tool_calls": [_called(query, id=query, index=0)]} for query in "xy"],
        ["x", "y"],
    ),
}


@pytest.mark.parametrize("streamed", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("name", ODD)
async def test_what_a_client_puts_together_is_what_was_checked(
    name: str, streamed: bool, upstream: ScriptedServer, proxy: RunningProxy
) -> None:
    pieces, queries = ODD[name]
    upstream.will(stream(with_role(*pieces, finish="tool_calls")))
    response = await ask(proxy, tools=[SEARCH], stream=streamed)
    if streamed:
        calls: list[dict[str, Any]] = []
        for one in [call for found in deltas(response) for call in found.get("tool_calls", ())]:
            if one["index"] == len(calls):
                calls.append(one)
                continue
            for key in ("name", "arguments"):  # as the SDKs do
                calls[one["index"]]["function"][key] += one["function"].get(key, "")
    else:
        calls = response.json()["choices"][0]["message"]["tool_calls"]
    assert [json.loads(call["function"]["arguments"])["query"] for call in calls] == queries
    assert {(call["type"], call["function"]["name"]) for call in calls} == {("function", "search")}
    assert len({call["id"] for call in calls}) == len(queries)
    assert response.headers["x-mlx-stack-repairs"] == "call_pieces"
    assert len(upstream.calls) == 1
