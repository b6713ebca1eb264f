"""Read a request's ``tool_choice``, in the spellings of clients, and check a reply against it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from ..engine.verdicts import CallFailure
from ..frozen import frozen
from . import explain

_REQUIRED = frozenset({"required", "any"})


@frozen
class ToolChoice:
    """What ``tool_choice`` demands of a reply."""

    none: bool = False  # no call
    required: bool = False  # at least one call
    allowed: tuple[str, ...] | None = None  # calls of these tools only; None: of any


NOTHING: Final = ToolChoice()  # demands nothing


LOST: Final = CallFailure(
    "",
    "lost_call",
    "a function was to be called, but the call could not be read; its arguments must be one valid "
    "JSON object",
)


def breach(
    choice: ToolChoice, names: Sequence[str], *, lost: bool, excused: bool
) -> CallFailure | None:
    """Return how a reply with calls of these ``names`` breaches ``choice``; None if it does not.

    ``lost``: the reply has no call, but was meant as one. ``excused``: it may lack calls, for it
    was cut or failed otherwise.
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
    """Read a ``tool_choice``: a word, one tool (OpenAI's two forms, Anthropic's), or allowed tools.

    An unknown form demands nothing.
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
    """Return the tool's name in ``{"function": {"name": …}}`` and its variants; "" if none."""
    if not isinstance(tool, dict):
        return ""
    inner = next((tool[key] for key in ("function", "custom") if key in tool), tool)
    name = inner.get("name") if isinstance(inner, dict) else None
    return name if isinstance(name, str) else ""
