"""Which replies a client can't use, by the bytes that it got."""

from __future__ import annotations

import json
from typing import Any

import pytest

from benchmarks.clients.tap import Seen
from tests.support.replies import DONE, chunk, data, text_chunks, with_role

Json = dict[str, Any]
SCHEMA: Json = {
    "type": "object",
    "properties": {"command": {"type": "string"}},
    "required": ["command"],
}
CHAT, MESSAGES, RESPONSES = "/v1/chat/completions", "/v1/messages", "/v1/responses"
TOOLS = {
    CHAT: {"type": "function", "function": {"name": "bash", "parameters": SCHEMA}},
    MESSAGES: {"name": "bash", "input_schema": SCHEMA},
    RESPONSES: {"type": "function", "name": "bash", "parameters": SCHEMA},
}
GOOD = '{"command": "ls"}'


def seen(reply: bytes, path: str = CHAT, status: int = 200, left: bool = False) -> Seen:
    stream = {"content-type": "text/event-stream"}
    body = {"tools": [TOOLS[path]]}
    return Seen("POST", path, body, status, stream, bytearray(reply), left)


def chat(*chunks: Json, end: bytes = DONE) -> bytes:
    return b"".join(map(data, chunks)) + end


def called(arguments: str, name: str = "bash") -> bytes:
    call = {"index": 0, "id": "1", "function": {"name": name, "arguments": arguments}}
    return chat(*with_role({"tool_calls": [call]}, finish="tool_calls"))


@pytest.mark.parametrize(
    ("reply", "flaw"),
    [
        (called(GOOD), ""),
        (called(GOOD[:-4]), "arguments"),
        (called(json.dumps(GOOD)), "arguments"),
        (called("{}"), "schema"),
        (called(GOOD, "bash_please"), "unknown_tool"),
        (chat(*text_chunks("clamp.py is right now.")), ""),
        (chat(*text_chunks("<tool_call>\n{}\n</tool_call>")), "call_as_text"),
        (chat(*text_chunks('{"name": "bash", "arguments": {}}')), "call_as_text"),
        (chat(*text_chunks(*["Let me look once more at it. "] * 9)), "looping"),
        (chat(*text_chunks("cut", finish="length")), "cut"),
        (chat(chunk({}, "tool_calls")), "empty"),
        (chat(*text_chunks("Half an answer"), end=b""), "no_end"),
        (chat({"error": {"message": "no", "type": None}}), "error"),
    ],
)
def test_of_chat_completions(reply: bytes, flaw: str) -> None:
    assert seen(reply).flaw() == flaw


def test_an_error_instead_of_a_reply() -> None:
    assert seen(b"", status=424).flaw() == "error"


def test_a_reply_that_the_client_left_is_judged_only_where_it_was_whole() -> None:
    half = chat(*text_chunks("Half an answer"), end=b"")
    assert seen(half, left=True).flaw() == ""
    assert seen(called("{}"), left=True).flaw() == "schema"


def of_messages(arguments: str) -> bytes:
    use = {"type": "tool_use", "name": "bash"}
    delta = {"type": "input_json_delta", "partial_json": arguments}
    events: list[Json] = [
        {"type": "message_start"},
        {"type": "content_block_start", "index": 0, "content_block": use},
        {"type": "content_block_delta", "index": 0, "delta": delta},
        {"type": "message_delta", "delta": {"stop_reason": "tool_use"}},
        {"type": "message_stop"},
    ]
    return chat(*events, end=b"")


def of_responses(arguments: str) -> bytes:
    item = {"type": "function_call", "name": "bash", "arguments": arguments}
    thought = {"type": "reasoning", "content": [{"type": "reasoning_text", "text": "Hm."}]}
    response = {"status": "completed", "output": [thought, item]}
    done = {"type": "response.output_item.done", "output_index": 1, "item": item}
    return chat(done, {"type": "response.completed", "response": response})


@pytest.mark.parametrize(("path", "reply"), [(MESSAGES, of_messages), (RESPONSES, of_responses)])
@pytest.mark.parametrize(("arguments", "flaw"), [(GOOD, ""), ("{}", "schema"), ('{"', "arguments")])
def test_of_the_other_dialects(path: str, reply: Any, arguments: str, flaw: str) -> None:
    assert seen(reply(arguments), path).flaw() == flaw
