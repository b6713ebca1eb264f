"""Template markup of calls and turns, which a lenient server may leave inside names and values.

`</parameter>` and `</s>` are also what people write about, search for and put into files. They are
a leak only where the parameter tells (`Vocabulary.holds`): at the end of a path or an id, and where
they stick to the end of an address or a command.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple


class _Marker(NamedTuple):
    """One kind of markup: what of it is told at a value's end, anywhere in it, and at its start.

    Anywhere it has to be a call's; at the end of a path any template's will do.
    """

    at_end: str
    anywhere: str = ""
    at_start: str = ""


_MARKERS: Final = (
    _Marker(r"</?tool_calls?>", anywhere=r"<\|?/?tool_calls?(?:_\w+)?\|?>"),
    _Marker(r"</arg_(?:key|value)>", anywhere=r"</?arg_(?:key|value)\b>?"),
    _Marker(r"<\|/?\w{1,40}\|?>", anywhere=r"<\|(?:channel|constrain|recipient|python_tag)\|>"),
    _Marker(r"</?｜[^<>\n]{1,60}>", anywhere=r"<｜tool[▁_]"),
    _Marker(
        r"</(?:parameters?|function|function_calls?|invoke|s)>",
        at_start=r"<(?:function|parameter)=[^<>\n]{1,100}>|<(?:invoke|parameter) name=",
    ),
    _Marker(r"</?\w{1,20}:(?:tool_call|invoke|parameter|function_calls)>"),
    _Marker(r"<(?:start|end)_(?:of_turn|function_call|function_response)>|<eos>"),
    _Marker(r"<\|\"\|>", at_start=r"<\|\"\|>"),
    _Marker(r"\]<\]minimax\[>\["),
    _Marker(r"\[TOOL_CALLS\]"),
)
_ANYWHERE: Final = "|".join(one.anywhere for one in _MARKERS if one.anywhere)
_MARKUP: Final = re.compile(_ANYWHERE)
_MENTIONS: Final = frozenset("\"'`“‘«/\\([=^|")
_GOES_ON: Final = re.compile(rf"\s*(?:\{{|{_ANYWHERE})")
KEY_MARKUP: Final = re.compile(r"<\|?/?(?:arg_|tool_call|parameter|function|invoke)")

# Characters; longer values, but for commands, are texts that may speak of it.
MAX_NAMED: Final = 400
MAX_TAIL: Final = 300  # characters at a value's end that may be markers
_ENDING: Final = f"(?:{'|'.join(one.at_end for one in _MARKERS)})"
# A turn that ended goes on with the next one's beginning: `ls<|im_end|>\n<|im_start|>assistant`.
_AT_END: Final = re.compile(
    rf"{_ENDING}(?:\s{{0,20}}(?:{_ENDING}|(?:assistant|user|model|commentary|analysis"
    rf"|final)\b)){{0,20}}\s{{0,20}}\Z"
)
_STARTS: Final = "|".join(one.at_start for one in _MARKERS if one.at_start)
_AT_START: Final = re.compile(rf"\s*(?:{_STARTS})")
_CLOSES: Final = re.compile(r"</([\w:]+)>")
# What a marker may stick to at a command's end. Behind a blank, `:`, `=` or `+` it is a word.
_STICKS: Final = re.compile(r"[\w)\]}\"';.,/*&|\n]\Z")


def may_hold_markup(text: str) -> bool:
    """Whether a call's arguments, as text, need a look at all: most hold no `<`."""
    return "<" in text or "\\u003" in text or "[TOOL_CALLS]" in text


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
    """The marker around `value` that its writer can't have meant; "" where there is none.

    ``holds``: as `Vocabulary.holds` has it.
    """
    if not holds or (len(value) > MAX_NAMED and holds != "command"):
        return ""
    begins = _AT_START.match(value)
    if begins is not None:
        return begins[0].strip()
    tail = _AT_END.search(value, max(0, len(value) - MAX_TAIL))
    if tail is None or _is_closed(value, tail.start()):
        return ""
    before = value[: tail.start()]
    sticks = holds == "place" or _STICKS.search(before.rstrip(" \t") if "\n" in before else before)
    return tail[0] if sticks else ""


def _is_closed(value: str, start: int) -> bool:
    """Whether the marker ends what the value itself began: `<s>old</s>`, `<|user|>hi<|end|>`."""
    before = value[:start]
    closes = _CLOSES.match(value, start)
    if closes is not None:
        return re.search(rf"<{re.escape(closes[1])}\b", before) is not None
    quotes = value.startswith('<|"|>', start)
    return not quotes and ("<|" in before or "<start_of_turn>" in before)
