"""Arguments in the client's own history that no server would read.

mlx-lm answers 404 to an assistant message whose call's arguments are no JSON object, so one bad
call that a framework kept would end the whole conversation.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import orjson

MAX_KEPT = 2000  # characters of the unparsable text


def readable(messages: Sequence[Any]) -> tuple[list[Any], int]:
    """The messages with unparsable arguments as ``{"_unparsed": "…"}``, and how many those were.

    The given messages are not changed; without anything to do, the list holds the very same ones.
    """
    count = 0
    mended: list[Any] = []
    for message in messages:
        calls = message.get("tool_calls") if isinstance(message, dict) else None
        if calls and isinstance(calls, list):
            new = [_readable_call(call) for call in calls]
            changed = sum(one is not call for one, call in zip(new, calls, strict=True))
            if changed:
                count += changed
                message = {**message, "tool_calls": new}  # noqa: PLW2901
        mended.append(message)
    return mended, count


def _readable_call(call: Any) -> Any:
    function = call.get("function") if isinstance(call, dict) else None
    if not isinstance(function, dict):
        return call
    arguments = function.get("arguments")
    if isinstance(arguments, dict):
        return call
    if isinstance(arguments, str):
        try:
            if isinstance(orjson.loads(arguments), dict):
                return call
        except orjson.JSONDecodeError:
            pass
    if not arguments:
        text = "{}"
    else:
        said = arguments if isinstance(arguments, str) else orjson.dumps(arguments).decode()
        text = orjson.dumps({"_unparsed": said[:MAX_KEPT]}).decode()
    return {**call, "function": {**function, "arguments": text}}
