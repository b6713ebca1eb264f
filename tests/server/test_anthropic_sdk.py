"""Anthropic's own client against the proxy: it reads the replies strictly, and asks nothing twice.

The SDK puts the events of a stream together as Claude Code does; each is also read into the
SDK's own types, by which a field of the wrong kind, or one that is missing, raises.
"""

from __future__ import annotations

import warnings
from collections.abc import AsyncIterator
from typing import Any

import anthropic
import pytest
from anthropic import beta_async_tool
from anthropic.types import Message, RawMessageStreamEvent
from pydantic import TypeAdapter

from tests.server.asking import Json
from tests.support.replies import TIME, TOP, USAGE, WEATHER, chunk, stream
from tests.support.running_proxy import RunningProxy
from tests.support.scripted_server import Reply, ScriptedServer

EVENT: TypeAdapter[Any] = TypeAdapter(RawMessageStreamEvent)
ASKED: Json = {
    "model": "claude-opus-4",
    "max_tokens": 500,
    "messages": [{"role": "user", "content": "What's the weather in Oslo?"}],
}
TOOLS: list[Any] = [
    {
        "name": name,
        "description": "Looks it up.",
        "input_schema": {"type": "object", "properties": {}, "additionalProperties": True},
    }
    for name in ("get_weather", "get_time")
]
CACHED = {**USAGE, "prompt_tokens_details": {"cached_tokens": 5}}


def said(*deltas: Json, finish: str = "stop", usage: Json = CACHED) -> Reply:
    """A chat stream of these deltas."""
    last = {**TOP, "object": "chat.completion.chunk", "choices": [], "usage": usage}
    begin = chunk({"role": "assistant", "content": ""})
    return stream([begin, *map(chunk, deltas), chunk({}, finish), last], usage=False)


def piece(call: Json, index: int, name: bool, arguments: str) -> Json:
    function: Json = {"arguments": arguments}
    head = {}
    if name:
        function["name"] = call["function"]["name"]
        head = {"id": call["id"], "type": "function"}
    return {"tool_calls": [{"index": index, **head, "function": function}]}


# What a model says, by name: the deltas, their finish reason, and the blocks they come to.
THINKING = ({"reasoning_content": "Let me "}, {"reasoning_content": "think."})
WORDS = ({"content": "It is "}, {"content": "cold."})
CALL = (piece(WEATHER, 0, True, ""), piece(WEATHER, 0, False, '{"city": "Oslo"}'))
IN_TURN = (
    piece(WEATHER, 0, True, ""),
    piece(TIME, 1, True, ""),
    piece(WEATHER, 0, False, '{"city": "Oslo"}'),
    piece(TIME, 1, False, '{"zone": "CET", "at": null}'),
)
THOUGHT_BLOCK = ("thinking", "Let me think.")
TEXT_BLOCK = ("text", "It is cold.")
CALL_BLOCK = ("tool_use", "call_a", "get_weather", {"city": "Oslo"})
TIME_BLOCK = ("tool_use", "call_b", "get_time", {"zone": "CET", "at": None})
CASES: dict[str, tuple[tuple[Json, ...], str, list[Any], str]] = {
    "text": (WORDS, "stop", [TEXT_BLOCK], "end_turn"),
    "cut": (WORDS, "length", [TEXT_BLOCK], "max_tokens"),
    "filtered": (WORDS, "content_filter", [TEXT_BLOCK], "refusal"),
    "thinking": ((*THINKING, *WORDS), "stop", [THOUGHT_BLOCK, TEXT_BLOCK], "end_turn"),
    "a call": (CALL, "tool_calls", [CALL_BLOCK], "tool_use"),
    "a call that says stop": (CALL, "stop", [CALL_BLOCK], "tool_use"),
    "text and a call": ((*WORDS, *CALL), "tool_calls", [TEXT_BLOCK, CALL_BLOCK], "tool_use"),
    "all": (
        (*THINKING, *WORDS, *CALL),
        "tool_calls",
        [THOUGHT_BLOCK, TEXT_BLOCK, CALL_BLOCK],
        "tool_use",
    ),
    "two calls in turn": (IN_TURN, "tool_calls", [CALL_BLOCK, TIME_BLOCK], "tool_use"),
}


@pytest.fixture(autouse=True)
def _strict() -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        yield


@pytest.fixture
async def claude(proxy: RunningProxy) -> AsyncIterator[anthropic.AsyncAnthropic]:
    http = anthropic.DefaultAsyncHttpxClient(verify=False)
    url = proxy.url
    async with anthropic.AsyncAnthropic(base_url=url, api_key="local", http_client=http) as client:
        yield client


def blocks(message: Any) -> list[Any]:
    found: list[Any] = []
    for block in message.content:
        if block.type == "tool_use":
            found.append(("tool_use", block.id, block.name, block.input))
        else:
            found.append((block.type, getattr(block, block.type)))
    return found


def check(message: Any, expected: list[Any], reason: str) -> None:
    Message.model_validate(message.model_dump(), strict=True)
    assert blocks(message) == expected
    assert message.stop_reason == reason
    assert message.model == "claude-opus-4"
    assert message.id.startswith("msg_")
    usage = message.usage
    assert (usage.input_tokens, usage.cache_read_input_tokens, usage.output_tokens) == (4, 5, 4)


async def streamed(api: Any) -> Message:
    async with api.stream(**ASKED, tools=TOOLS) as running:
        found: Message = await running.get_final_message()
        return found


async def whole(api: Any) -> Message:
    found: Message = await api.create(**ASKED, tools=TOOLS)
    return found


@pytest.mark.parametrize("name", CASES)
async def test_each_way(
    name: str, upstream: ScriptedServer, claude: anthropic.AsyncAnthropic
) -> None:
    """Streamed and whole, by both of the SDK's interfaces; one block is open at a time."""
    deltas, finish, expected, reason = CASES[name]
    upstream.always(said(*deltas, finish=finish))
    for ask in (streamed, whole):
        check(await ask(claude.messages), expected, reason)
        check(await ask(claude.beta.messages), expected, reason)
    running = await claude.messages.create(**ASKED, tools=TOOLS, stream=True)
    events = [event.model_dump() async for event in running]
    for event in events:
        EVENT.validate_python(event, strict=True)
    begin, *_, last, end = [event["type"] for event in events]
    assert (begin, last, end) == ("message_start", "message_delta", "message_stop")
    assert events[0]["message"]["usage"]["input_tokens"] > 0
    opened: list[Any] = []
    kinds = {"thinking_delta": "thinking", "text_delta": "text", "input_json_delta": "tool_use"}
    is_open = False
    for event in events[1:-2]:
        match event["type"]:
            case "content_block_start":
                assert not is_open
                assert event["index"] == len(opened)
                opened.append(event["content_block"])
                is_open = True
            case "content_block_delta":
                assert is_open
                assert kinds[event["delta"]["type"]] == opened[-1]["type"]
            case "content_block_stop":
                assert event["index"] == len(opened) - 1
                is_open = False
    assert not is_open
    assert [block["type"] for block in opened] == [one[0] for one in expected]


@beta_async_tool
async def get_weather(city: str) -> str:
    """The weather in a city.

    Args:
        city: its name
    """
    return f"Snow in {city}."


@pytest.mark.parametrize("streamed", [False, True])
async def test_the_tool_runner(
    streamed: bool, upstream: ScriptedServer, claude: anthropic.AsyncAnthropic
) -> None:
    """It asks for a thread first, is told that there is none, and sends whole transcripts."""
    upstream.will(said(*THINKING, *CALL, finish="tool_calls"), said({"content": "It snows."}))
    runner: Any = claude.beta.messages.tool_runner(**ASKED, tools=[get_weather], stream=streamed)
    found = []
    async for reply in runner:
        found.append(await reply.get_final_message() if streamed else reply)
    assert [message.stop_reason for message in found] == ["tool_use", "end_turn"]
    assert found[-1].content[0].text == "It snows."
    first, second = (call.json()["messages"] for call in upstream.calls)
    assert second[: len(first)] == first
    asked, result = second[len(first) :]
    assert asked["reasoning_content"] == "Let me think."
    assert (result["role"], result["content"]) == ("tool", "Snow in Oslo.")
    assert result["tool_call_id"] == asked["tool_calls"][0]["id"] == "call_a"
