"""Sorts a request's tools into those that the model can be offered and those that it can't.

A tool with a schema is the client's own, and is offered. A tool without one has a type defined by
Anthropic. The client runs some of these tools, but sends no schema, because Anthropic's models were
trained on it; Anthropic's servers run the others. The tiers' models know neither kind. A tool that
is loaded later (``defer_loading``) is offered once a result has named it.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, Final

from ..call import as_function
from ..transcript import Json
from .content import refused

# Prefixes of the types that the client runs, and whose schema is not sent.
_CLIENTS_OWN = ("bash_", "text_editor_", "memory_", "computer_")
_CHOICES: Final[dict[Any, str]] = {"auto": "auto", "any": "required", "none": "none"}


def offer(body: Json, loaded: Collection[str]) -> tuple[Json, tuple[str, ...]]:
    """Translate a request's tools. ``loaded``: the deferred tools that results have named.

    Return the fields about tools for the chat completion's request, and the names of the tools that
    are left out, because Anthropic's servers would run them.

    Raises :class:`ProxyError` (400) for a tool of the client's without a schema, and if the request
    has, or forces, only tools that Anthropic's servers run.
    """
    tools: list[Json] = []
    left_out = ["mcp_servers"] if body.get("mcp_servers") else []
    for position, tool in enumerate(body.get("tools") or ()):
        kind = tool.get("type") or "custom"
        if kind != "custom" and "input_schema" not in tool:
            if kind.startswith(_CLIENTS_OWN):
                sentence = (
                    f"has the type {kind}, whose schema is not sent: send it as a custom tool"
                )
                raise refused(sentence, f"tools[{position}]")
            left_out.append(tool.get("name") or kind)
        elif not tool.get("defer_loading") or tool.get("name") in loaded:
            tools.append(_function(tool))
    choice = body.get("tool_choice")
    choice = choice if isinstance(choice, dict) else {}
    forced = choice.get("name") if choice.get("type") == "tool" else None
    if left_out and (not tools or forced in left_out):
        names = forced if forced in left_out else ", ".join(left_out)
        raise refused(f"{names} runs on Anthropic's servers, and can't be run here", "tools")
    return _fields(tools, choice) if tools else {}, tuple(left_out)


def _function(tool: Json) -> Json:
    function = {"name": tool.get("name")}
    if description := tool.get("description"):
        function["description"] = description
    function["parameters"] = tool.get("input_schema") or {"type": "object", "properties": {}}
    if isinstance(strict := tool.get("strict"), bool):
        function["strict"] = strict
    return as_function(function)


def _fields(tools: list[Json], choice: Json) -> Json:
    fields: Json = {"tools": tools}
    if choice.get("type") == "tool":
        fields["tool_choice"] = as_function({"name": choice.get("name")})
    elif (tool_choice := _CHOICES.get(choice.get("type"))) is not None:
        fields["tool_choice"] = tool_choice
    if choice.get("disable_parallel_tool_use") is True:
        fields["parallel_tool_calls"] = False
    return fields
