"""Read a request's ``tool_choice``, in the spellings of clients, and check a reply against it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from msgspec import Struct

from ..engine.verdicts import CallFailure
from . import explain

_REQUIRED = frozenset({"required", "any"})


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
    """Return how a reply with calls of these ``names`` breaches ``choice``; None if it does not.

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
        return ToolChoice(none=choice == "none", required=choice in _REQUIRED)
    if not isinstance(choice, dict):
        return NOTHING
    kind = choice.get("type")
    if kind == "allowed_tools":
        return _allowed(choice)
    name = _name(choice)
    if name:
        return ToolChoice(required=True, allowed=(name,))
    return ToolChoice(none=kind == "none", required=kind in _REQUIRED)


def _allowed(choice: dict[str, Any]) -> ToolChoice:
    holder = choice.get("allowed_tools")
    holder = holder if isinstance(holder, dict) else choice
    tools = holder.get("tools")
    names = [_name(tool) for tool in tools] if isinstance(tools, list) else []
    allowed = tuple(name for name in names if name)
    return ToolChoice(required=holder.get("mode") in _REQUIRED, allowed=allowed or None)


def _name(tool: Any) -> str:
    """Return the tool's name in ``{"function": {"name": …}}`` and its variants; "" if none."""
    if not isinstance(tool, dict):
        return ""
    inner = next((tool[key] for key in ("function", "custom") if key in tool), tool)
    name = inner.get("name") if isinstance(inner, dict) else None
    return name if isinstance(name, str) else ""
