"""Compile the schemas that a reply needs in a thread, before the reply is mended and judged.

The event loop compiles small schemas itself, when they are asked for; to compile a large one, or
one with patterns or references, would hold it for up to 50 ms.
"""

from __future__ import annotations

from collections.abc import Callable

from ..wire.reply import Reply
from .check import raw_schema
from .schemas import is_quick, reply_schema
from .tools import ToolSet


def slow_compiling(
    reply: Reply, tools: ToolSet, response_format: object, *, in_text: bool
) -> Callable[[], object] | None:
    """Return what compiles the schemas of ``reply`` that take long; None: none does.

    ``in_text``: the reply's text may hold calls, too.
    """
    names = [name for name in _tools_of(reply, tools, in_text) if not tools.is_quick(name)]
    wanted = raw_schema(response_format)
    quick = wanted is None or is_quick(wanted, whole_object=False)
    if not names and quick:
        return None

    def compile_all() -> None:
        for name in names:
            tools.compiled(name)
        if not quick:
            reply_schema(wanted)

    return compile_all


def _tools_of(reply: Reply, tools: ToolSet, in_text: bool) -> set[str]:
    """Return the tools that the reply calls, or may call in its text."""
    names: set[str] = set()
    for choice in reply.choices.values():
        if choice.tool_calls:
            called = {call.name for call in choice.tool_calls}
            names.update(filter(None, map(tools.tool_named, called)))
        elif in_text:
            names.update(name for name in tools.names if name in choice.text)
    return names
