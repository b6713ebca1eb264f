"""What a request's ``tool_choice`` asks for, in the spellings that clients use."""

from __future__ import annotations

from typing import Any, Final

from ..frozen import frozen

_REQUIRED = frozenset({"required", "any"})


@frozen
class ToolChoice:
    """``none``: no calls. ``required``: at least one. ``allowed``: only of these tools."""

    none: bool = False
    required: bool = False
    allowed: tuple[str, ...] | None = None


NOTHING: Final = ToolChoice()  # is asked for


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
