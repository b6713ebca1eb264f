"""Which replies no agent can use, and which only go round in circles.

None of this is the proxy's own code: what it is judged by must not be what it decides by.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from itertools import takewhile
from typing import Any

import jsonschema

from benchmarks.records import Json

# A text that loops: its last piece so many times, and so many characters in all.
LAPS, LOOP_CHARS = 4, 60
EQUAL_CALLS = 3  # in one reply
EQUAL_TURNS = 4  # a call that was made so often before, always with the same result
_MARKERS = re.compile(
    r"<tool_call|<function[=_]|<\|tool|\[TOOL_(CALLS|REQUEST)|<invoke |functools\["
    r"|^\s*Action( Input)?:|\"(name|function|tool)\"\s*:\s*\"\w+\"",
    re.MULTILINE,
)


def flaw(
    message: Mapping[str, Any],
    finish: str | None,
    history: Sequence[Json],
    offered: Mapping[str, Mapping[str, Any]],
) -> str:
    """Why an agent can't use a reply; empty: it can.

    `unknown_tool`, `arguments` (no JSON object), `schema`, `call_as_text`, `looping`, `cut` (by a
    token limit), `empty`. ``history``: the messages that it answers. ``offered``: the tools with
    their parameters' schemas.
    """
    calls = message.get("tool_calls") or []
    for call in calls:
        if found := call_flaw(call["function"], offered):
            return found
    if loops(message, EQUAL_TURNS, history):
        return "looping"
    if finish == "length":
        return "cut"
    text = message.get("content") or ""
    if not calls:
        if not text.strip():
            return "empty"
        if _is_call(text, offered):
            return "call_as_text"
    return ""


def call_flaw(function: Mapping[str, Any], offered: Mapping[str, Mapping[str, Any]]) -> str:
    if function["name"] not in offered:
        return "unknown_tool"
    try:
        arguments = json.loads(function["arguments"])
    except ValueError:
        return "arguments"
    if not isinstance(arguments, dict):
        return "arguments"
    fits = jsonschema.Draft202012Validator(offered[function["name"]]).is_valid(arguments)
    return "" if fits else "schema"


def _is_call(text: str, names: Iterable[str]) -> bool:
    if _MARKERS.search(text):
        return True
    telling = (re.escape(name) for name in names if "_" in name)  # `read` may be a word
    return any(re.search(rf"\b{name}\b\W*(with\W*)?[({{]", text) for name in telling)


def loops(message: Mapping[str, Any], turns: int, history: Sequence[Json]) -> str:
    """How a reply loops: in its `text`, its `calls`, over the `turns`; empty: it does not.

    ``turns``: the n-th time that a call is made, always with the same result, counts.
    """
    texts = (message.get(key) or "" for key in ("content", "reasoning_content", "reasoning"))
    if any(periodic(text) for text in texts):
        return "text"
    calls = [_key(call) for call in message.get("tool_calls") or []]
    if any(calls.count(call) >= EQUAL_CALLS for call in calls):
        return "calls"
    if calls and all(_unmoved(call, history) >= turns - 1 for call in calls):
        return "turns"
    return ""


def periodic(text: str) -> bool:
    """Whether a text ends in one piece over and over; the last lap may be a part of it."""
    text = text.rstrip()
    size = len(text)
    for period in range(1, size // LAPS + 1):
        length = max(LAPS * period, LOOP_CHARS)
        if length > size:
            continue
        end = text[size - length :]
        if end[period:] == end[:-period]:
            return True
    return False


def _unmoved(call: tuple[str, str], history: Sequence[Json]) -> int:
    """How often a call was made before, counted back from the last as long as its result stayed."""
    by_id: dict[str, tuple[str, str]] = {}
    results: list[str] = []
    for message in history:
        by_id |= {one["id"]: _key(one) for one in message.get("tool_calls") or []}
        if message["role"] == "tool" and by_id.get(message.get("tool_call_id", "")) == call:
            results.append(str(message["content"]))
    return sum(1 for _ in takewhile(lambda result: result == results[-1], reversed(results)))


def _key(call: Mapping[str, Any]) -> tuple[str, str]:
    function = call["function"]
    arguments = function["arguments"]
    with suppress(ValueError, TypeError):
        arguments = json.dumps(json.loads(arguments), sort_keys=True)
    return function["name"], str(arguments)
