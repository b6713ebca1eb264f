"""What the stages make of the replies of real models: calls read, unread, and wrong.

    make score

A second, generous reader says what a reply holds: every JSON object of a ``name`` and
``arguments``, whatever stands around it. Where hardly anything does, the stages must read exactly
these calls; where prose does, they must doubt the reply at least. A call of a tool that isn't
offered must be refused or doubted, and a reply without a call must go out as it came.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

from benchmarks.measure.corpora import canonical
from benchmarks.records import Json
from mlx_stack_proxy.engine.verdicts import InvalidToolCall
from mlx_stack_proxy.tool_validation.text_calls import rescue, rescue_cut
from mlx_stack_proxy.tool_validation.tools import tool_set

NAME = "real-models/replies.jsonl"
_CALL = re.compile(r'\{\s*"name"\s*:')
_KEYS = ("arguments", "parameters")
_AROUND = re.compile(
    r'```(?:json)?|</?tools?(?:_call)?>|"type": "function", "function":|[\s{}\[\],;>]'
)


def kind_of(row: Json, judged: Callable[..., Any]) -> str:
    """Return what becomes of a recorded reply. ``judged``: as in ``score``."""
    tools, text = row["request"].get("tools") or [], row["reply"]["content"] or ""
    cut = row["finish_reason"] != "stop"  # None: the proxy of that time had ended a loop
    offered = tool_set(tools)
    calls = (rescue_cut if cut else rescue)(text, offered).calls
    found = [(call.name, canonical(call.arguments)) for call in calls]
    held, alone = _held(text)
    if cut:
        return "cut" if found == held[: len(found)] else "wrong"
    verdict = judged(tools, [], [], text).verdict
    asked_again = isinstance(verdict, InvalidToolCall)
    if not held:
        broken = bool(_CALL.search(text)) and not _AROUND.sub(
            "", text[: _CALL.search(text).start()]
        )
        return _without_call(broken, bool(found), asked_again)
    names = [(offered.tool_named(name), arguments) for name, arguments in held]
    known = [call for call in names if call[0] is not None]
    if found:
        right = alone and found == known and (len(known) == len(held) or asked_again)
        return "read" if right else "wrong"
    if not alone:
        return "in prose, asked again" if asked_again else "in prose, goes out"
    return "not offered, asked again" if asked_again and not known else "unread"


def _without_call(broken: bool, found: bool, asked_again: bool) -> str:
    if broken:
        return "broken, read" if found else "broken, asked again" if asked_again else "unread"
    return "wrong" if found else "answer, asked again" if asked_again else "answer"


def _held(text: str) -> tuple[list[tuple[str, str]], bool]:
    """Return the calls that a text holds, and whether hardly anything stands around them."""
    calls: list[tuple[str, str]] = []
    around, end = "", 0
    for match in _CALL.finditer(text):
        if match.start() < end:
            continue
        try:
            members, stop = _DECODER.raw_decode(text, match.start())
        except ValueError:
            continue
        arguments = [members[key] for key in _KEYS if key in members]
        is_call = len(members) == 2 and len(arguments) == 1 and isinstance(arguments[0], dict)
        if is_call:
            calls.append((members["name"], canonical(arguments[0])))
        if is_call or "description" in members:  # a tool's definition says nothing
            around, end = around + text[end : match.start()], stop
    return calls, not _AROUND.sub("", around + text[end:])


def _once(pairs: list[tuple[str, Any]]) -> Json:
    members = dict(pairs)
    if len(members) < len(pairs):
        raise ValueError("a key came twice")
    return members


_DECODER = json.JSONDecoder(object_pairs_hook=_once)
