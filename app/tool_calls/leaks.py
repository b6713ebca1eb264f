"""Template markup of calls, which a lenient server may leave inside names and values."""

from __future__ import annotations

import re
from typing import Final

_MARKUP: Final = re.compile(
    r"<\|?/?tool_calls?(?:_\w+)?\|?>|</?arg_(?:key|value)\b>?|<\|(?:channel|constrain|recipient)\|>"
    r"|<\|python_tag\|>|<｜tool[▁_]"
)
_MENTIONS: Final = frozenset("\"'`“‘«/\\([=^|")
_GOES_ON: Final = re.compile(rf"\s*(?:\{{|{_MARKUP.pattern})")
KEY_MARKUP: Final = re.compile(r"<\|?/?(?:arg_|tool_call|parameter|function|invoke)")


def leak(value: str, searching: bool) -> str:
    """The markup in `value` that is a template's and no one's word; "" where there is none.

    Who looks for `<tool_call>` or writes about it puts it in quotes or between spaces. What a
    server left behind sticks to a value, to more markup, or to the call's JSON.
    """
    for found in _MARKUP.finditer(value):
        before, after = value[: found.start()], value[found.end() :]
        if before[-1:] in _MENTIONS:
            continue
        left, right = before[-1:].isalnum(), after[:1].isalnum()
        ends = found[0].startswith(("</", "<|/")) and not after.strip() and bool(before.strip())
        if searching:
            leaks = (left and right) or (ends and not before[-1].isspace())
        else:
            leaks = left or right or ends or found[0] == value.strip()
        if leaks or _GOES_ON.match(after):
            return found[0]
    return ""
