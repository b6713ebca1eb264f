"""What a request's ``tool_choice`` asks for, in the spellings that clients use, and who obeys."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from ..engine.verdicts import CallFailure
from ..frozen import frozen
from . import explain

_REQUIRED = frozenset({"required", "any"})


@frozen
class ToolChoice:
    """``none``: no calls. ``required``: at least one. ``allowed``: only of these tools."""

    none: bool = False
    required: bool = False
    allowed: tuple[str, ...] | None = None


NOTHING: Final = ToolChoice()  # is asked for


LOST: Final = CallFailure(
    "",
    "lost_call",
    "a function was to be called, but the call could not be read; its arguments must be one valid "
    "JSON object",
)


def breach(
    choice: ToolChoice, names: Sequence[str], *, lost: bool, excused: bool
) -> CallFailure | None:
    """What the calls of these `names` breach; None where all is well.

    `lost`: there are none, and the reply is to be one. `excused`: none need be there.
    """
    if choice.none:
        said = "no function may be called now; answer with text"
        tool = names[0] if names else ""
        return CallFailure(tool, "tool_choice", said) if names or lost else None
    missing = not names and not excused
    wrong = [name for name in names if choice.allowed and name not in choice.allowed]
    if choice.allowed and (wrong or (choice.required and missing)):
        came = f', not "{wrong[0]}"' if wrong else ""
        must = "must" if choice.required else "alone may"
        only = explain.one_of(choice.allowed)
        said = f"function {only} {must} be called{came}"
        return CallFailure(choice.allowed[0], "tool_choice", said)
    if choice.required and missing:
        return CallFailure("", "tool_choice", "a function must be called, and none was")
    return LOST if lost and missing else None


def read_choice(given: Any) -> ToolChoice:
    """A ``tool_choice``: a word, one tool (OpenAI's two forms, Anthropic's), or allowed tools.

    What nobody knows asks for nothing.
    """
    if isinstance(given, str):
        return ToolChoice(none=given == "none", required=given in _REQUIRED)
    if not isinstance(given, dict):
        return NOTHING
    kind = given.get("type")
    if kind == "allowed_tools":
        return _allowed(given)
    name = _name(given)
    if name:
        return ToolChoice(required=True, allowed=(name,))
    return ToolChoice(none=kind == "none", required=kind in _REQUIRED)


def _allowed(given: dict[str, Any]) -> ToolChoice:
    holder = given.get("allowed_tools")
    holder = holder if isinstance(holder, dict) else given
    tools = holder.get("tools")
    names = [_name(tool) for tool in tools] if isinstance(tools, list) else []
    allowed = tuple(name for name in names if name)
    return ToolChoice(required=holder.get("mode") in _REQUIRED, allowed=allowed or None)


def _name(tool: Any) -> str:
    """The tool's name in ``{"function": {"name": …}}`` and its relatives; "" where there is none"""
    if not isinstance(tool, dict):
        return ""
    inner = next((tool[key] for key in ("function", "custom") if key in tool), tool)
    name = inner.get("name") if isinstance(inner, dict) else None
    return name if isinstance(name, str) else ""
