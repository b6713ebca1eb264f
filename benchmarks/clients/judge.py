"""Which replies a client can't use, as it got them, in any protocol.

None of this is the proxy's own code: what it is judged by must not be what it decides by.
"""

from __future__ import annotations

from typing import Any

from benchmarks.agents import broken
from benchmarks.clients.tap import Seen

Json = dict[str, Any]


def flaw(seen: Seen) -> str:
    """Why a client can't use a reply; empty: it can, or has left it before its end.

    `error`, `no_end`, `unreadable`, and what `benchmarks.agents.broken` calls a flaw.
    """
    try:
        outcome = seen.outcome()
    except (AssertionError, KeyError, TypeError, ValueError):
        return "unreadable"
    if seen.left and not outcome.ended:
        return ""
    if outcome.error is not None or outcome.status != 200:
        return "error"
    if not outcome.ended:
        return "no_end"
    calls = [{"function": {"name": name, "arguments": text}} for name, text in outcome.calls]
    message = {"content": outcome.text, "tool_calls": calls}
    finish = outcome.finish[-1] if outcome.finish else None
    return broken.flaw(message, finish, [], schemas(seen.body))


def schemas(body: Json) -> dict[str, Json]:
    """The tools that a request offers, with their parameters' schemas, in any protocol."""
    found = {}
    for tool in body.get("tools") or ():
        one = tool.get("function", tool)
        if "name" in one:
            found[one["name"]] = one.get("input_schema") or one.get("parameters") or {}
    return found
