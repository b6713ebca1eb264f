"""Arguments in the client's own history that no server would read.

mlx-lm answers 404 to an assistant message whose call's arguments are no JSON object, so one bad
call that a framework kept would end the whole conversation.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import orjson

from ...core.blocks import Blocks, Remembered
from ...core.reply import is_object

MAX_KEPT = 2000  # characters of the unparsable text


def readable(blocks: Blocks) -> tuple[Sequence[Any], int]:
    """The messages with unparsable arguments as ``{"_unparsed": "…"}``, and how many those were.

    The given messages are not changed; without anything to do, they are what is given back.
    """
    suspect = [start + at for start, found in _suspects.parts(blocks) for at in found]
    if not suspect:
        return blocks.messages, 0
    count = 0
    mended = list(blocks.messages)
    for position in suspect:
        message = mended[position]
        calls = message["tool_calls"]
        new = [_readable_call(call) for call in calls]
        changed = sum(one is not call for one, call in zip(new, calls, strict=True))
        if changed:
            count += changed
            mended[position] = {**message, "tool_calls": new}
    return mended, count


def _suspect(messages: Sequence[Any]) -> tuple[int, ...]:
    """Which messages have calls that aren't as nearly all are, and must be looked at closely."""
    return tuple(
        [
            position
            for position, message in enumerate(messages)
            if isinstance(message, dict)
            and (calls := message.get("tool_calls"))
            and isinstance(calls, list)
            and not all(map(_is_readable, calls))
        ]
    )


_suspects = Remembered(_suspect)


def _is_readable(call: Any) -> bool:
    function = call.get("function") if type(call) is dict else None
    arguments = function.get("arguments") if type(function) is dict else None
    return type(arguments) is str and is_object(arguments)


def _readable_call(call: Any) -> Any:
    function = call.get("function") if isinstance(call, dict) else None
    if not isinstance(function, dict):
        return call
    arguments = function.get("arguments")
    if isinstance(arguments, dict):
        return call
    if isinstance(arguments, str) and is_object(arguments):
        return call
    if not arguments:
        text = "{}"
    else:
        said = arguments if isinstance(arguments, str) else orjson.dumps(arguments).decode()
        text = orjson.dumps({"_unparsed": said[:MAX_KEPT]}).decode()
    return {**call, "function": {**function, "arguments": text}}
