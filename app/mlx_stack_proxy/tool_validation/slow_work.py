"""What takes long at a reply's end and can be done in a thread, before the event loop judges.

The event loop compiles small schemas itself, when they are asked for; to compile a large one, or
one with patterns or references, would hold it for up to 50 ms. So would a doubt that searches a
long transcript.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from ..wire.reply import Reply, ToolCall
from .check import raw_schema
from .schemas import is_quick, reply_schema
from .text_calls import rescue
from .tools import ToolSet

LONG: Final = 64_000  # bytes of a request; to search its transcript takes a few milliseconds


def slow_work(
    reply: Reply,
    tools: ToolSet,
    response_format: object,
    doubt: Callable[[Sequence[ToolCall]], object] | None,
    *,
    in_text: bool,
) -> Callable[[], None] | None:
    """Return what a thread should do; None: nothing takes long.

    It compiles the schemas that the reply needs, and calls ``doubt`` (None: nothing would be slow)
    with the reply's calls. ``in_text``: the reply's text may hold calls, too.
    """
    names = _tools_of(reply, tools, in_text)
    slow_tools = [name for name in names if not tools.is_quick(name)]
    wanted = raw_schema(response_format)
    slow_format = wanted is not None and not is_quick(wanted, whole_object=False)
    if not slow_tools and not slow_format and (doubt is None or not names):
        return None

    def work() -> None:
        for name in slow_tools:
            tools.compiled(name)
        if slow_format:
            reply_schema(wanted)
        if doubt is not None:
            doubt(_calls_in(reply, tools, in_text))

    return work


def _tools_of(reply: Reply, tools: ToolSet, in_text: bool) -> set[str]:
    """Return the tools that the reply calls, or may call in its text."""
    names: set[str] = set()
    for choice in reply.choices.values():
        if choice.tool_calls:
            called = {call.name for call in choice.tool_calls}
            names.update(filter(None, map(tools.tool_named, called)))
        elif in_text:
            said = choice.text if choice.text.strip() else choice.reasoning
            names.update(name for name in tools.names if name in said)
    return names


def _calls_in(reply: Reply, tools: ToolSet, in_text: bool) -> Sequence[ToolCall]:
    """Return the calls of a reply with one choice, as they will most likely be judged."""
    choice = next(iter(reply.choices.values()))
    if choice.tool_calls or not in_text:
        return choice.tool_calls
    return [ToolCall("", call.name, call.arguments) for call in rescue(choice.text, tools).calls]
