"""Replace arguments in the client's own history that are not a JSON object.

mlx-lm answers 404 to an assistant message with such a call, so one bad call that a framework keeps
in its history would end the whole conversation.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import orjson

from ..wire.reply import is_object

MAX_KEPT = 2000  # characters of the unparsable text


def readable(messages: Sequence[Any]) -> tuple[Sequence[Any], int]:
    """Return the messages with readable arguments, and the number of calls that were changed.

    Arguments that don't parse become ``{"_unparsed": "…"}``, missing ones ``{}``. The given list
    stays as it is, and is returned itself if no call needs a change.
    """
    mended, count = list(messages), 0
    for at, message in enumerate(messages):
        calls = message.get("tool_calls") if isinstance(message, dict) else None
        if calls and isinstance(calls, list):
            new = [_readable_call(call) for call in calls]
            changed = sum(one is not call for one, call in zip(new, calls, strict=True))
            if changed:
                mended[at] = {**message, "tool_calls": new}
                count += changed
    return (mended, count) if count else (messages, 0)


def _readable_call(call: Any) -> Any:
    function = call.get("function") if isinstance(call, dict) else None
    if not isinstance(function, dict):
        return call
    arguments = function.get("arguments")
    if isinstance(arguments, dict) or (isinstance(arguments, str) and is_object(arguments)):
        return call
    if not arguments:
        text = "{}"
    else:
        said = arguments if isinstance(arguments, str) else orjson.dumps(arguments).decode()
        text = orjson.dumps({"_unparsed": said[:MAX_KEPT]}).decode()
    return {**call, "function": {**function, "arguments": text}}
