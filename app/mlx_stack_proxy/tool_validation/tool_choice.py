"""Reads a request's ``tool_choice`` in all clients' forms, and checks a reply against it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from msgspec import Struct

from ..engine.verdicts import CallFailure
from . import explain

_REQUIRED = ("required", "any")


class ToolChoice(Struct, frozen=True):
    """What ``tool_choice`` demands of a reply."""

    none: bool = False  # no call
    required: bool = False  # at least one call
    allowed: tuple[str, ...] | None = None  # calls of these tools only; None: of any


NOTHING: Final = ToolChoice()  # demands nothing
CLAIMED: Final = CallFailure(
    "", "lost_call", "the reply ended as a call does, but there was none after its text"
)
LOST: Final = CallFailure(
    "",
    "lost_call",
    "a function had to be called, but the call could not be read; its arguments must be one valid "
    "JSON object",
)


def breach(
    choice: ToolChoice, names: Sequence[str], *, lost: bool, excused: bool
) -> CallFailure | None:
    """Return how a reply with calls of these ``names`` violates ``choice``, or None.

    ``lost``: the reply has no call, but was meant as one. ``excused``: it may lack calls,
    because it was cut or failed otherwise.
    """
    if choice.none:
        error = "no function may be called now; answer with text"
        tool = names[0] if names else ""
        return CallFailure(tool, "tool_choice", error) if names or lost else None
    missing = not names and not excused
    wrong = [name for name in names if choice.allowed and name not in choice.allowed]
    if choice.allowed and (wrong or (choice.required and missing)):
        instead = f', not "{wrong[0]}"' if wrong else ""
        verb = "must" if choice.required else "alone may"
        functions = explain.one_of(choice.allowed)
        error = f"function {functions} {verb} be called{instead}"
        return CallFailure(choice.allowed[0], "tool_choice", error)
    if choice.required and missing:
        return CallFailure("", "tool_choice", "a function must be called, and none was")
    return LOST if lost and missing else None


def read_choice(choice: Any) -> ToolChoice:
    """Read a ``tool_choice``: a word, one tool (OpenAI's two forms, Anthropic's), or allowed tools.

    An unknown form demands nothing.
    """
    if isinstance(choice, str):
        choice = {"type": choice}
    match choice:
        case {"type": "allowed_tools", "allowed_tools": dict(holder)} | (
            {"type": "allowed_tools"} as holder
        ):
            tools = holder.get("tools")
            names = tuple(filter(None, map(_name, tools if isinstance(tools, list) else ())))
            return ToolChoice(required=holder.get("mode") in _REQUIRED, allowed=names or None)
        case dict() if name := _name(choice):
            return ToolChoice(required=True, allowed=(name,))
        case {"type": kind}:
            return ToolChoice(none=kind == "none", required=kind in _REQUIRED)
    return NOTHING


def _name(tool: Any) -> str:
    """Return the tool's name in ``{"function": {"name": …}}`` and its variants; "" if none."""
    match tool:
        case {"function": inner} | {"custom": inner} | inner:
            pass
    name = inner.get("name") if isinstance(inner, dict) else None
    return name if isinstance(name, str) else ""
