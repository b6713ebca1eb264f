"""Upstreams that call tools, well and badly, and how to read what came of it."""

from __future__ import annotations

import json
from typing import Any

import httpx

from tests.server.asking import NOTE, payloads
from tests.support.messages import call_piece
from tests.support.replies import stream, with_role
from tests.support.scripted_server import Call, Reply
from tests.tool_validation.calls import RUN, SEARCH, WRITE, parameters, tool

Json = dict[str, Any]
TOOLS = [SEARCH, WRITE, RUN]
RULES = "reliability.tool_validation"
GET_ORDER = tool("get_order", parameters("order_id", order_id="string"))
GOOD = '{"query": "quokka"}'
MISSING = 'missing required field "query" in function "search"'
CORRECTION = f"""\
Your previous response contained an invalid tool call. The error was:
{MISSING}.
You must respond with valid JSON matching the tool schema exactly.
Available tools: search, write_file, run_terminal_command."""


def delta(arguments: str, name: str = "search", id: str = "call_1", index: int = 0) -> Json:
    return call_piece(name, arguments, id, index)


def calling(
    arguments: str,
    *before: Json,
    name: str = "search",
    id: str = "call_1",
    top: Json | None = None,
) -> Reply:
    """A stream that calls a tool, after these deltas."""
    chunks = with_role(*before, delta(arguments, name, id), finish="tool_calls")
    return stream([{**one, **(top or {})} for one in chunks])


def getting(order: str) -> Reply:
    """A stream that calls `get_order`."""
    return calling(json.dumps({"order_id": order}), name="get_order")


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
