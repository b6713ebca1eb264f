"""Arguments in the client's own history that no server would read.

mlx-lm answers 404 to an assistant message whose call's arguments are no JSON object, so one bad
call that a framework kept would end the whole conversation.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import orjson

MAX_KEPT = 2000  # characters of the unparsable text
KNOWN = 4096  # arguments of which it is known whether they can be read
MAX_KNOWN = 1024  # characters of each at most


def readable(messages: Sequence[Any]) -> tuple[list[Any], int]:
    """The messages with unparsable arguments as ``{"_unparsed": "…"}``, and how many those were.

    The given messages are not changed; without anything to do, the list holds the very same ones.
    """
    count = 0
    mended = list(messages)
    for position, message in enumerate(messages):
        calls = message.get("tool_calls") if isinstance(message, dict) else None
        if not calls or not isinstance(calls, list) or all(map(_is_readable, calls)):
            continue
        new = [_readable_call(call) for call in calls]
        changed = sum(one is not call for one, call in zip(new, calls, strict=True))
        if changed:
            count += changed
            mended[position] = {**message, "tool_calls": new}
    return mended, count


def _is_readable(call: Any) -> bool:
    """Whether a call is as nearly all are; others are looked at more closely."""
    function = call.get("function") if type(call) is dict else None
    arguments = function.get("arguments") if type(function) is dict else None
    return type(arguments) is str and len(arguments) <= MAX_KNOWN and _is_known_object(arguments)


def _readable_call(call: Any) -> Any:
    function = call.get("function") if isinstance(call, dict) else None
    if not isinstance(function, dict):
        return call
    arguments = function.get("arguments")
    if isinstance(arguments, dict):
        return call
    if isinstance(arguments, str) and _is_object(arguments):
        return call
    if not arguments:
        text = "{}"
    else:
        said = arguments if isinstance(arguments, str) else orjson.dumps(arguments).decode()
        text = orjson.dumps({"_unparsed": said[:MAX_KEPT]}).decode()
    return {**call, "function": {**function, "arguments": text}}


def _is_object(arguments: str) -> bool:
    try:
        return isinstance(orjson.loads(arguments), dict)
    except orjson.JSONDecodeError:
        return False


# An agent sends every call of its run again with each turn.
_is_known_object = lru_cache(KNOWN)(_is_object)
