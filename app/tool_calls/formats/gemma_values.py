"""Gemma's own way of writing arguments: `{key:<escape>text<escape>,count:5,nested:{…}}`.

Also as it slips, in a parameter of the call itself: text in single quotes, without any where the
tool declares a text, or without its second quote. What ends such a text is the next parameter that
the tool has, or the end of the call, whose tag has to be there.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from functools import cached_property
from typing import Any

from app.tool_calls.formats.base import Call, Source
from app.tool_calls.formats.literals import MAX_NESTING, dumps, skip_space

_CALL = re.compile(r"\s*(?:call\s*:\s*)?([^\s{}()<>,:]{1,200})\s*(?=\{)")
_KEY = re.compile(r"\s*+([^:{}\[\],<>]{1,200}?)\s*+:")
_PLAIN = re.compile(r"[^,{}\[\]<]*")
_STRING = re.compile(r'"(?:[^"\\]|\\.)*"')
_WORDS = {"true": True, "false": False, "null": None, "None": None, "True": True, "False": False}


def read_call(src: Source, pos: int, quote: str, closer: str) -> tuple[Call, int] | None:
    """`call:name{…}` at `pos`, text delimited by `quote`; None where it is not that.

    `closer` is what ends the call.
    """
    match = _CALL.match(src.text, pos)
    if match is None:
        return None
    name = match.group(1)
    reader = _Reader(src, quote, closer, src.tools.properties(name))
    try:
        value, end = reader.members(match.end() + 1, 0)
    except ValueError:
        src.spend(reader.reached - pos)
        return None
    return Call(name, dumps(value)), end


class _Reader:
    """Reads values; raises ValueError where the text is no value."""

    def __init__(self, src: Source, quote: str, closer: str, properties: Mapping[str, Any]) -> None:
        self.src = src
        self.text = src.text
        self.quote = quote
        self.closer = closer
        self.properties = properties
        self.reached = 0  # how far a text without its quotes was looked for

    def value(self, pos: int, depth: int) -> tuple[Any, int]:
        if depth > MAX_NESTING:
            raise ValueError("nested too deeply")
        at = skip_space(self.text, pos)
        if self.text.startswith(self.quote, at):
            return self.quoted(at)
        if self.text.startswith("{", at):
            return self.members(at + 1, depth)
        if self.text.startswith("[", at):
            return self.items(at + 1, depth)
        string = _STRING.match(self.text, at)
        if string is not None:
            return json.loads(string.group(), strict=False), string.end()
        return self.plain(at)

    def quoted(self, pos: int) -> tuple[str, int]:
        start = pos + len(self.quote)
        end = self.src.find(self.quote, start)
        if end < 0:
            raise ValueError("text without an end")
        return self.text[start:end], end + len(self.quote)

    @cached_property
    def next_parameter(self) -> str:
        """A pattern for the beginning of another parameter that the tool has."""
        names = "|".join(re.escape(name) for name in self.properties) or "(?!)"
        return rf",\s*[\"']?(?:{names})[\"']?\s*:"

    def is_text(self, key: str) -> bool:
        declared = self.properties.get(key)
        return isinstance(declared, Mapping) and declared.get("type") == "string"

    def argument(self, key: str, pos: int) -> tuple[Any, int]:
        """A value of the call itself."""
        at = skip_space(self.text, pos)
        if self.text.startswith(self.quote, at):
            if self.src.find(self.quote, at + 1) < 0:
                return self.half_quoted(at + len(self.quote))
        elif self.text.startswith("'", at):
            return self.single(at + 1)
        elif self.is_text(key) and not self.text.startswith(('"', "{", "["), at):
            return self.unquoted(at)
        return self.value(at, 1)

    def call_end(self, pos: int) -> int:
        """Where the call's closing tag stands. Raises ValueError where there is none."""
        stop = self.src.find(self.closer, pos)
        self.reached = max(self.reached, stop if stop >= 0 else len(self.text))
        if stop < 0:
            raise ValueError("a call without its end")
        return stop

    def single(self, start: int) -> tuple[str, int]:
        """Text in single quotes, which it may hold itself."""
        stop = self.call_end(start)
        ends = re.compile(
            rf"'(?:{re.escape(self.quote)})?(?=\s*(?:{self.next_parameter}|\}}?\s*\Z))"
        )
        found = ends.search(self.text, start, stop)
        if found is None:
            raise ValueError("text without an end")
        written = self.text[start : found.start()]
        if written.startswith(self.quote):
            written = written.removeprefix(self.quote).removesuffix(self.quote)
        return written, found.end()

    def half_quoted(self, start: int) -> tuple[str, int]:
        """Text that nothing ends but the call: up to its last bracket, if that is the call's."""
        stop = self.call_end(start)
        written = self.text[start:stop].rstrip()
        left_open = written.count("{") - written.count("}")
        if left_open not in (0, -1) or re.search(self.next_parameter, written):
            raise ValueError("text without an end")
        if left_open and not written.endswith("}"):
            raise ValueError("text without an end")
        return (written, stop) if not left_open else (written[:-1], start + len(written) - 1)

    def unquoted(self, start: int) -> tuple[Any, int]:
        """Text without quotes: it may hold commas."""
        value, plain_end = self.plain(start)
        try:
            stop = self.call_end(start)
        except ValueError:
            return value, plain_end
        ends = re.compile(rf"\s*(?:{self.next_parameter}|\}}?\s*\Z)")
        found = ends.search(self.text, start, stop)
        if found is None or found.start() <= plain_end:
            return value, plain_end
        return self.text[start : found.start()].strip(), found.start()

    def plain(self, pos: int) -> tuple[Any, int]:
        match = _PLAIN.match(self.text, pos)
        word = match.group().strip() if match else ""
        if match is None or not word:
            raise ValueError("no value")
        if word in _WORDS:
            return _WORDS[word], match.end()
        try:
            return json.loads(word), match.end()
        except ValueError:
            return word, match.end()

    def members(self, pos: int, depth: int) -> tuple[dict[str, Any], int]:
        found: dict[str, Any] = {}
        at = skip_space(self.text, pos)
        while not self.text.startswith("}", at):
            key, at = self.key(at)
            found[key], at = self.value(at, depth + 1) if depth else self.argument(key, at)
            if not depth and self.text.startswith(self.closer, at):
                return found, at  # its bracket is missing
            at = self.comma(at, "}")
        return found, at + 1

    def key(self, pos: int) -> tuple[str, int]:
        if self.text.startswith(self.quote, pos):
            key, at = self.quoted(pos)
            at = skip_space(self.text, at)
            if not self.text.startswith(":", at):
                raise ValueError("a key without a value")
            return key, at + 1
        match = _KEY.match(self.text, pos)
        if match is None:
            raise ValueError("no key")
        return match.group(1).strip("\"'"), match.end()

    def items(self, pos: int, depth: int) -> tuple[list[Any], int]:
        found: list[Any] = []
        at = skip_space(self.text, pos)
        while not self.text.startswith("]", at):
            item, at = self.value(at, depth + 1)
            found.append(item)
            at = self.comma(at, "]")
        return found, at + 1

    def comma(self, pos: int, closer: str) -> int:
        at = skip_space(self.text, pos)
        if self.text.startswith(",", at):
            return skip_space(self.text, at + 1)
        if not self.text.startswith(closer, at):
            raise ValueError("neither a comma nor an end")
        return at
