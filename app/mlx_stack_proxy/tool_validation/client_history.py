"""Replaces arguments in the client's own history that are not a JSON object.

mlx-lm answers 404 to an assistant message with such a call, so one bad call that a framework keeps
in its history would end the whole conversation.
"""

from __future__ import annotations

from collections.abc import Sequence
from operator import is_not
from typing import Any, Final

import orjson

from ..wire.blocks import Blocks, PrefixCache
from ..wire.call import object_in

MAX_KEPT = 2000  # characters of the unparsable text
_KNOWN: Final[PrefixCache[bool]] = PrefixCache()


def is_readable(blocks: Blocks) -> bool:
    """Whether the arguments of all calls in a client's messages are a JSON object."""
    return _KNOWN.read(
        blocks, True, lambda all_readable, messages: all_readable and readable(messages)[1] == 0
    )


def readable(messages: Sequence[Any]) -> tuple[list[Any], int]:
    """Return the messages with readable arguments, and the number of changed calls.

    Arguments that don't parse become ``{"_unparsed": "…"}``, missing ones ``{}``. The input stays
    unchanged.
    """
    mended, count = list(messages), 0
    for position, message in enumerate(messages):
        if calls := message.get("tool_calls"):
            new_calls = [_readable_call(call) for call in calls]
            if changed := sum(map(is_not, new_calls, calls)):
                mended[position] = {**message, "tool_calls": new_calls}
                count += changed
    return mended, count


def _readable_call(call: Any) -> Any:
    function = call.get("function")
    if not isinstance(function, dict):
        return call
    arguments: Any = function.get("arguments")
    is_text = isinstance(arguments, str)
    if isinstance(arguments, dict) or (is_text and object_in(arguments) is not None):
        return call
    original = arguments if is_text else orjson.dumps(arguments).decode()
    kept = {"_unparsed": original[:MAX_KEPT]} if arguments else {}
    return {**call, "function": {**function, "arguments": orjson.dumps(kept).decode()}}
