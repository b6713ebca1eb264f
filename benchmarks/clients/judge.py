"""Which replies a client can't use, as it got them, in any protocol.

None of this is the proxy's own code: what it is judged by must not be what it decides by.
"""

from __future__ import annotations

from benchmarks.agents import broken
from benchmarks.clients.tap import Seen
from benchmarks.records import Json


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
    offered = [tool.get("function", tool) for tool in seen.body.get("tools") or ()]
    schemas: dict[str, Json] = {
        one["name"]: one.get("input_schema") or one.get("parameters") or {}
        for one in offered
        if "name" in one
    }
    return broken.flaw(message, finish, [], schemas)
