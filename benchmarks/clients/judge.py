"""Which replies a client can't use, as it got them, in any protocol.

None of this is the proxy's own code: what it is judged by must not be what it decides by.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import jsonschema

from benchmarks.agents import broken
from benchmarks.clients.tap import Seen
from tests.faults.clients import Outcome

Json = dict[str, Any]


def flaw(seen: Seen) -> str:
    """Why a client can't use a reply; empty: it can, or has left it before its end.

    `error`, `no_end`, and what `benchmarks.agents.broken` calls a flaw.
    """
    try:
        outcome = seen.outcome()
    except (AssertionError, KeyError, TypeError, ValueError):
        return "unreadable"
    if seen.left and not outcome.ended:
        return ""
    return flaw_of(outcome, schemas(seen.body))


def flaw_of(outcome: Outcome, offered: Mapping[str, Json]) -> str:
    if outcome.error is not None or outcome.status != 200:
        return "error"
    if not outcome.ended:
        return "no_end"
    for name, arguments in outcome.calls:
        if found := _call_flaw(name, arguments, offered):
            return found
    if outcome.calls:  # a call needs no text
        return "looping" if broken.periodic(outcome.text) else ""
    return broken.flaw({"content": outcome.text}, _finish(outcome.finish), [])


def _finish(reasons: Sequence[str]) -> str | None:
    return reasons[-1] if reasons else None


def _call_flaw(name: str, arguments: str, offered: Mapping[str, Json]) -> str:
    if name not in offered:
        return "unknown_tool"
    try:
        given = json.loads(arguments)
    except ValueError:
        return "arguments"
    if not isinstance(given, dict):
        return "arguments"
    fits = jsonschema.Draft202012Validator(offered[name]).is_valid(given)
    return "" if fits else "schema"


def schemas(body: Json) -> dict[str, Json]:
    """The tools that a request offers, with their parameters' schemas, in any protocol."""
    found = {}
    for tool in body.get("tools") or ():
        one = tool.get("function", tool)
        if "name" in one:
            found[one["name"]] = one.get("input_schema") or one.get("parameters") or {}
    return found
