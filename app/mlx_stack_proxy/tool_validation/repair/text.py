"""Reads the text of a call's arguments as the only JSON value that it can mean.

A strict parser comes first. If it fails, a lenient one reads the value, and rules explain the text
before and after it; a text that no rule explains has no reading.

The rules, in the order in which they are tried:

=====================  ============================================================================
``invalid_escape``     in a Windows path all backslashes, if one would be a backspace or form feed
``double_encoded``     a JSON string that holds the JSON (also with escaped quotes but none around)
``list_of_one``        the object as the only element of an array
``code_fence``         Markdown's fence around the value
``leading_text``       words before it: ``Arguments:``, ``Sure!``, a template's marker
the reader's           see ``LENIENCIES``: quotes, literals, commas, keys, newlines, closers
``extra_closer``       closing brackets after the value
``duplicate_object``   the same object once more, or begun twice; a different one is a second call
``trailing_text``      words after the value that hold no data
``doubled_braces``     a template's ``{{...}}``
``unescaped_quotes``   quotation marks inside strings, where only one way of ending them is JSON
=====================  ============================================================================
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any, Final

from msgspec import Struct
from msgspec.structs import replace

from ...wire.json_reader import PATH, JsonReader, parse
from ...wire.json_text import Unreadable

MAX_LEADING: Final = 300
MAX_COPIES: Final = 8
MAX_ENCODINGS: Final = 3

_JSON_SPACE: Final = " \t\r\n"
_EDGES: Final = " \t\r\n\ufeff\u00a0"
_FENCE: Final = re.compile(r"```[\w+-]*\s*$")
# A word before the object may end in a colon, but `path: "a", {…}` and `x={…}` are data, and in
# `<arg_key>x</arg_key><arg_value>{…}` the object is a parameter's value.
_LEADING_DATA: Final = re.compile(r'["=}]|</(?!think)\w+>\s*<\w')
# Text after the value that may be data: a quotation mark or brace in it suggests that one inside a
# string has ended the value too early.
_TRAILING_DATA: Final = re.compile(r"[,:0-9]|[^{}\"]*[{}\"]")
_FILLED: Final = re.compile(r"\s*\{\s*[\"']")
_CLOSERS: Final = re.compile(r"[\s}\])]*")
_BEGUN: Final = re.compile(r'\{\s*"[^"\\]{1,200}"')
_QUOTES_ESCAPED: Final = re.compile(r'\{\s*\\"')
# In a text with escaped quotes: an escape that may be escaped once or twice, or a bare quote.
_NOT_ONLY_QUOTES: Final = re.compile(r'(?<!\\)"|\\(?!")')
# Quotation marks around words, as in prose, with no JSON punctuation next to them.
_QUOTED: Final = re.compile(
    r'(?<=[ \t\n(])"(?![ ,:{}\[\]])([^"\\\n]*[^"\\\s,:{}\[\]])"(?=[ \t\n.!?;)\'])'
)
# A Windows path in which JSON reads a backspace or a form feed ("C:\bin", "C:\foo"); no path
# has either.
_MISREAD: Final = re.compile(rf'(?<!\\)"(?=[A-Za-z]:[^"]*\\[bf]){PATH.pattern}"')


class RepairedText(Struct, frozen=True):
    """The one reading of a text."""

    value: Any
    rules: tuple[str, ...]  # the rules that the reading needed
    text: str | None = None  # the strict JSON in the text; None if the value isn't


def read(text: str, root: str = "{") -> RepairedText:
    """Return the one reading of ``text``, in linear time; raise ``Unreadable`` if there is none.

    ``root``: the brackets that may begin the value, ``{`` for a call's arguments, ``{[`` for a
    reply in JSON. The caller limits the text's size.
    """
    doubled = text
    if "\\b" in text or "\\f" in text:
        doubled = _MISREAD.sub(lambda path: path[0].replace("\\", "\\\\"), text)
    # Don't strip the end: whitespace ends a number, so `{"a": 12\n` lacks only its closer.
    reading = _read(doubled.lstrip(_JSON_SPACE), root, MAX_ENCODINGS)
    if doubled == text:
        return reading
    return replace(reading, rules=tuple(dict.fromkeys((*reading.rules, "invalid_escape"))))


def _read(text: str, root: str, encodings: int) -> RepairedText:
    try:
        reading = RepairedText(parse(text), (), text)
    except Unreadable as strict_error:
        if strict_error.kind == "too_deep":
            raise
        reading = _read_leniently(text, root, encodings, strict_error)
    value = reading.value
    if isinstance(value, str) and encodings:
        inner = _read(value.strip(_EDGES), root, encodings - 1)
        return _with_rules((*reading.rules, "double_encoded"), inner)
    if isinstance(value, dict) or (isinstance(value, list) and "[" in root):
        return reading
    if isinstance(value, list) and len(value) == 1 and isinstance(value[0], dict):
        return RepairedText(value[0], (*reading.rules, "list_of_one"))
    raise Unreadable("not_an_object", "are not a JSON object")


def _with_rules(rules: Iterable[str], reading: RepairedText) -> RepairedText:
    """Return a reading with these rules prepended."""
    return replace(reading, rules=tuple(dict.fromkeys((*rules, *reading.rules))))


def _read_leniently(text: str, root: str, encodings: int, strict_error: Unreadable) -> RepairedText:
    if _QUOTES_ESCAPED.match(text) and encodings:
        if _NOT_ONLY_QUOTES.search(text):
            raise strict_error
        inner = _read(text.rstrip().replace('\\"', '"'), root, encodings - 1)
        return _with_rules(["double_encoded"], inner)
    start, rules = _skip_leading(text, root, strict_error)
    try:
        return _with_rules(rules, _read_at(text, start))
    except Unreadable:
        if text.startswith("{{") and encodings:
            # One brace too many, only at the beginning or at both ends.
            text = text.rstrip()
            inner = _read(text[1:-1] if text.endswith("}}") else text[1:], root, 0)
            return _with_rules(["doubled_braces"], inner)
        begun = _BEGUN.match(text) if encodings else None
        again = text.find(begun[0], begun.end()) if begun else 0
        inside = text[:again].rstrip().endswith((":", "[", ","))  # the second one is a value
        if again > 0 and not inside and text.startswith(text[:again], again):
            return _with_rules(["duplicate_object"], _read(text[again:], root, 0))
        raise


def _skip_leading(text: str, root: str, error: Unreadable) -> tuple[int, list[str]]:
    """Return the index where the value begins, and the rules for the text before it."""
    opening = re.search(f'["{re.escape(root)}]', text)
    start = 0 if text[:1] == "[" else opening.start() if opening else MAX_LEADING + 1
    leading = text[:start]
    if start > MAX_LEADING or _LEADING_DATA.search(leading):
        raise error
    fence = _FENCE.search(leading)
    words = leading[: fence.start()] if fence else leading
    rules = ["leading_text"] if words.strip(_JSON_SPACE) else []
    return start, [*rules, *(["code_fence"] if fence else [])]


def _read_at(text: str, start: int) -> RepairedText:
    reader = JsonReader(text, start)
    try:
        value = reader.value()
    except Unreadable as error:
        if error.kind != "invalid_json":
            raise
        return _read_with_inner_quotes(text, start, error)
    if value == {} and _FILLED.match(text, reader.position):
        # Some servers send an empty object first and append the real arguments.
        return _with_rules(["leading_text"], _read_at(text, text.index("{", reader.position)))
    exact = None if reader.used else text[start : reader.position]
    trailing_rules = _trailing_rules(text, reader.position, value)
    return RepairedText(value, (*reader.used, *trailing_rules), exact)


def _read_with_inner_quotes(text: str, start: int, error: Unreadable) -> RepairedText:
    escaped = _QUOTED.sub(r'\\"\1\\"', text)
    reader = JsonReader(escaped, start)
    try:
        value = reader.value()
    except Unreadable:
        raise error from None
    if not reader.used.keys() <= {"unescaped_newline"} or escaped[reader.position :].strip():
        raise error
    return RepairedText(value, ("unescaped_quotes", *reader.used))


def _trailing_rules(text: str, position: int, value: Any) -> list[str]:
    """Return the rules for the text after the value; raise ``Unreadable`` if it may be data."""
    rules: dict[str, None] = {}
    remainder = text[position:]
    for _ in range(MAX_COPIES):
        begin, position = position, _CLOSERS.match(text, position).end()  # type: ignore[union-attr]
        if text[begin:position].strip():
            rules["extra_closer"] = None
        if text[position : position + 1] != "{":
            break
        copy = JsonReader(text, position)
        if copy.value() != value:
            raise Unreadable("invalid_json", "hold two different JSON objects")
        rules["duplicate_object"] = None
        position = copy.position
    trailing = text[position:].strip()
    if trailing == ",":
        rules["trailing_comma"] = None
    elif trailing == "```":
        rules["code_fence"] = None
    elif trailing:
        if trailing != '"' and _TRAILING_DATA.match(trailing):
            raise Unreadable("invalid_json", f"go on after the JSON object: `{trailing[:40]}`")
        rules["trailing_text"] = None
    elif not rules and remainder.strip(_JSON_SPACE):
        rules["odd_space"] = None
    return list(rules)
