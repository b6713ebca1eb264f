"""The dialects of the clients: how each asks, and how it reads what comes, in chat's own words.

A row of `SPOKEN` turns a chat request into the dialect's own, and takes its replies apart, whole
ones and event by event, as the dialect's clients do.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

Json = dict[str, Any]
CHAT, MESSAGES, RESPONSES = "chat", "messages", "responses"
DONE = "[DONE]"
_STOPS = {"end_turn": "stop", "tool_use": "tool_calls", "max_tokens": "length"}


@dataclass
class DeltaContent:
    """A reply as far as it has come. `ended`: by what ends one in its dialect."""

    text: str = ""
    calls: dict[int, tuple[str, str]] = field(default_factory=dict)
    finish: list[str] = field(default_factory=list)
    error: Json | None = None
    ended: bool = False

    def called(self, at: int, name: str = "", arguments: str = "") -> None:
        known = self.calls.get(at, ("", ""))
        self.calls[at] = (known[0] + name, known[1] + arguments)


@dataclass(frozen=True)
class Spoken:
    """`asks`: of a chat request; `whole`: of a body; `event`: of a stream's data, `[DONE]` too."""

    path: str
    asks: Callable[[Json], Json]
    whole: Callable[[Json, DeltaContent], None]
    event: Callable[[Json, DeltaContent], None]
    ends_with_done: bool


def _chat_whole(body: Json, said: DeltaContent) -> None:
    said.error = body.get("error")
    for choice in body.get("choices", ()):
        message = choice["message"]
        said.text += message.get("content") or ""
        for call in message.get("tool_calls") or ():
            said.called(len(said.calls), call["function"]["name"], call["function"]["arguments"])
        said.finish.append(choice["finish_reason"])


def _chat_event(event: Json, said: DeltaContent) -> None:
    said.error = said.error or event.get("error")
    for choice in event.get("choices", ()):
        delta = choice["delta"]
        said.text += delta.get("content") or ""
        for piece in delta.get("tool_calls") or ():
            function = piece["function"]
            name, arguments = function.get("name") or "", function.get("arguments") or ""
            said.called(piece["index"], name, arguments)
        if choice.get("finish_reason"):
            said.finish.append(choice["finish_reason"])


def _as_messages(chat: Json) -> Json:
    messages: list[Json] = []
    for one in chat["messages"]:
        if one["role"] == "tool":
            result = {"tool_use_id": one["tool_call_id"], "content": one["content"]}
            one = {"role": "user", "content": [{"type": "tool_result", **result}]}
        elif one.get("tool_calls"):
            one = {"role": "assistant", "content": [_tool_use(c) for c in one["tool_calls"]]}
        messages.append(one)
    body = {**chat, "messages": messages, "max_tokens": 4096}
    if tools := body.pop("tools", None):
        functions = [tool["function"] for tool in tools]
        body["tools"] = [{"name": f["name"], "input_schema": f["parameters"]} for f in functions]
    return body


def _tool_use(call: Json) -> Json:
    function = call["function"]
    given = json.loads(function["arguments"])
    return {"type": "tool_use", "id": call["id"], "name": function["name"], "input": given}


def _messages_error(error: Json) -> Json:
    details = error.get("details", {})
    return {**details, "message": error["message"], "type": details.get("error_code")}


def _messages_whole(body: Json, said: DeltaContent) -> None:
    if body["type"] == "error":
        said.error = _messages_error(body["error"])
        return
    for block in body["content"]:
        said.text += block.get("text", "")
        if block["type"] == "tool_use":
            said.called(len(said.calls), block["name"], json.dumps(block["input"]))
    said.finish.append(_STOPS[body["stop_reason"]])


def _messages_event(event: Json, said: DeltaContent) -> None:
    match event["type"]:
        case "content_block_start" if event["content_block"]["type"] == "tool_use":
            said.called(event["index"], event["content_block"]["name"])
        case "content_block_delta":
            said.text += event["delta"].get("text", "")
            if event["delta"]["type"] == "input_json_delta":
                said.called(event["index"], arguments=event["delta"]["partial_json"])
        case "message_delta":
            said.finish.append(_STOPS[event["delta"]["stop_reason"]])
        case "message_stop":
            said.ended = True
        case "error":
            said.error, said.ended = _messages_error(event["error"]), True


def _as_responses(chat: Json) -> Json:
    items: list[Json] = []
    for one in chat["messages"]:
        if one["role"] == "tool":
            result = {"call_id": one["tool_call_id"], "output": one["content"]}
            items.append({"type": "function_call_output", **result})
        elif one.get("tool_calls"):
            for call in one["tool_calls"]:
                items.append({"type": "function_call", "call_id": call["id"], **call["function"]})
        else:
            items.append(one)
    body = {key: value for key, value in chat.items() if key != "messages"}
    if tools := body.get("tools"):
        body["tools"] = [{"type": "function", **tool["function"]} for tool in tools]
    return {**body, "input": items}


def _responses_whole(body: Json, said: DeltaContent) -> None:
    said.error = body.get("error")
    for item in body.get("output", ()):
        if item["type"] == "message":
            said.text += "".join(part["text"] for part in item["content"])
        if item["type"] == "function_call":
            said.called(len(said.calls), item["name"], item["arguments"])
    if body.get("status"):
        ended = {"completed": "tool_calls" if said.calls else "stop", "incomplete": "length"}
        said.finish.append(ended[body["status"]])


def _responses_event(event: Json, said: DeltaContent) -> None:
    match event["type"]:
        case "response.output_text.delta":
            said.text += event["delta"]
        case "response.output_item.done" if event["item"]["type"] == "function_call":
            said.called(event["output_index"], event["item"]["name"], event["item"]["arguments"])
        case "response.failed":
            said.error = event["response"]["error"]
        case "response.completed" | "response.incomplete":
            whole = DeltaContent()
            _responses_whole(event["response"], whole)
            assert (whole.text, list(whole.calls.values())) == (
                said.text,
                list(said.calls.values()),
            ), "the last event has what came"
            said.finish += whole.finish


SPOKEN = {
    CHAT: Spoken("/v1/chat/completions", lambda chat: chat, _chat_whole, _chat_event, True),
    MESSAGES: Spoken("/v1/messages", _as_messages, _messages_whole, _messages_event, False),
    RESPONSES: Spoken("/v1/responses", _as_responses, _responses_whole, _responses_event, True),
}


def read_whole(body: Json, speaks: str) -> DeltaContent:
    said = DeltaContent(ended=bool(body))
    if body:
        SPOKEN[speaks].whole(body, said)
    return said


def read_data(data: str, said: DeltaContent, speaks: str) -> None:
    """The data of a stream's next frame."""
    assert not said.ended, "nothing comes behind the end"
    spoken = SPOKEN[speaks]
    if data == DONE:
        said.ended = spoken.ends_with_done
    else:
        spoken.event(json.loads(data), said)
