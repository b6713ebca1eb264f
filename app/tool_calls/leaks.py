"""Template markup of calls and turns, which a lenient server may leave inside names and values.

`</parameter>` and `</s>` are also what people write about, search for and put into files. They are
a leak only where the parameter tells (`Vocabulary.holds`): a path has none at all; a command has
none at its very end; another name has none that sticks to its end, and a pattern no two.
"""

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

MAX_NAMED: Final = 400  # characters; longer values, but for commands, are texts
MAX_TAIL: Final = 300  # characters at a command's end that may be markers
_MARKER: Final = (
    r"(?:</(?:parameters?|function|function_calls?|invoke|arguments|s)>"
    r"|</?\w{1,20}:(?:tool_call|invoke|parameter|function_calls)>"
    r"|<(?:function|parameter)=[^<>\n]{1,100}>|<(?:invoke|parameter) name=[^<>\n]{1,100}>"
    r"|<(?:start|end)_(?:of_turn|function_call|function_response)>|<escape>|<eos>"
    r"|</?tool_calls?>|</arg_(?:key|value)>"
    r"|<\|/?\w{1,40}\|?>|<\|\"\|>|</?｜[^<>\n]{1,60}>|\]<\]minimax\[>\["
    r"|\[/?(?:TOOL_CALLS|ARGS|END_TOOL_REQUEST)\])"
)
_BRACKETED: Final = ("TOOL_CALLS]", "ARGS]", "END_TOOL_REQUEST]")
_ANY: Final = re.compile(_MARKER)
# A turn that ended goes on with the next one's beginning: `ls<|im_end|>\n<|im_start|>assistant`.
_AT_END: Final = re.compile(
    rf"{_MARKER}(?:\s*(?:{_MARKER}|(?:assistant|user|model|commentary|analysis|final)\b))*\s*\Z"
)
_AT_START: Final = re.compile(
    r"\s*(?:<(?:function|parameter)=[^<>\n]{1,100}>|<(?:invoke|parameter) name=|<\|\"\|>|<escape>)"
)
_CLOSES: Final = re.compile(r"</([\w:]+)>")
# Whoever looks for a marker or prints it writes it so; a path ends with `/` before a leak, too.
_QUOTES: Final = frozenset("\"'`“‘«=^")


def may_hold_markup(text: str) -> bool:
    """Whether a call's arguments, as text, need a look at all: most hold no `<`."""
    return "<" in text or "\\u003c" in text or any(word in text for word in _BRACKETED)


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


def left_behind(value: str, holds: str) -> str:
    """The first marker in `value` that its writer can't have meant; "" where there is none."""
    if not holds or (len(value) > MAX_NAMED and holds != "command"):
        return ""
    begins = _AT_START.match(value)
    if begins is not None:
        return begins[0].strip()
    if holds == "place":
        for found in _ANY.finditer(value):
            if found[0][0] == "[" and value[found.end() :].strip():
                continue  # words in brackets may be a name's own, but for its end
            if value[: found.start()][-1:] not in _QUOTES and not _is_closed(value, found):
                return found[0]
    tail = _AT_END.search(value, max(0, len(value) - MAX_TAIL))
    first = _ANY.match(value, tail.start()) if tail is not None else None
    if first is None or _is_closed(value, first) or value[: first.start()][-1:] == "=":
        return ""
    if holds == "pattern" and len(_ANY.findall(value, first.start())) == 1:
        return ""  # what is looked for in files may end with one
    return first[0] if _sticks(value[: first.start()], first[0], holds) else ""


def _sticks(before: str, marker: str, holds: str) -> bool:
    """Whether a marker at the end belongs to what is `before` it, and is no word of its own.

    No shell reads `ls <|im_end|>`, but `grep [ARGS]` is one, and "what is </s>" a question.
    """
    gap = before[len(before.rstrip()) :]
    if holds in ("command", "place") and marker[0] == "<":
        return True
    return bool(before.strip()) and (not gap or "\n" in gap)


def _is_closed(value: str, found: re.Match[str]) -> bool:
    """Whether the marker ends what the value itself began: `<s>old</s>`, `<|user|>hi<|end|>`."""
    before = value[: found.start()]
    closes = _CLOSES.fullmatch(found[0])
    if closes is not None:
        return re.search(rf"<{re.escape(closes[1])}\b", before) is not None
    return found[0] != '<|"|>' and ("<|" in before or "<start_of_turn>" in before)
