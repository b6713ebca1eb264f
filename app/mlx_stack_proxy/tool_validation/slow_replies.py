"""Whether to mend and judge a short reply takes long, so that a thread does it.

The event loop compiles small schemas itself, when they are asked for; to compile a large one, or
one with patterns or references, would hold it for up to 50 ms. So would a doubt that searches a
long transcript.
"""

from __future__ import annotations

from typing import Final

from ..wire.reply import Reply
from .check import raw_schema
from .schemas import is_quick
from .tools import ToolSet

LONG: Final = 10_000  # bytes of a request; to search its transcript takes up to 10 milliseconds


def is_slow(
    reply: Reply, tools: ToolSet, response_format: object, searched: int, *, in_text: bool
) -> bool:
    """Whether a schema that the reply needs is slow to compile, or a doubt searches long.

    ``searched``: bytes of the request that a doubt searches. ``in_text``: the reply's text may hold
    calls, too.
    """
    wanted = raw_schema(response_format)
    if wanted is not None and not is_quick(wanted, whole_object=False):
        return True
    names: set[str | None] = set()  # the tools that the reply calls, or may call in its text
    for choice in reply.choices.values():
        if choice.tool_calls:
            names.update(map(tools.tool_named, {call.name for call in choice.tool_calls}))
        elif in_text:
            said = choice.text if choice.text.strip() else choice.reasoning
            names.update(name for name in tools.names if name in said)
    called = [name for name in names if name is not None]
    return bool(called) and (searched > LONG or not all(map(tools.is_quick, called)))
