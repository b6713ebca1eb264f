"""Gemma's own way of writing arguments: `{key:<escape>text<escape>,count:5,nested:{…}}`."""

from __future__ import annotations

import json
import re
from typing import Any

from app.tool_calls.formats.base import Call, Source
from app.tool_calls.formats.literals import MAX_NESTING, dumps, skip_space

_CALL = re.compile(r"\s*(?:call\s*:\s*)?([^\s{}()<>,:]{1,200})\s*(?=\{)")
_KEY = re.compile(r"\s*([^:{}\[\],<>]{1,200}?)\s*:")
_PLAIN = re.compile(r"[^,{}\[\]<]*")
_STRING = re.compile(r'"(?:[^"\\]|\\.)*"')
_WORDS = {"true": True, "false": False, "null": None, "None": None, "True": True, "False": False}


def read_call(src: Source, pos: int, quote: str) -> tuple[Call, int] | None:
    """`call:name{…}` at `pos`, text delimited by `quote`; None where it is not that."""
    match = _CALL.match(src.text, pos)
    if match is None:
        return None
    try:
        value, end = _Reader(src, quote).value(match.end(), 0)
    except ValueError:
        return None
    return Call(match.group(1), dumps(value)), end


class _Reader:
    """Reads values; raises ValueError where the text is no value."""

    def __init__(self, src: Source, quote: str) -> None:
        self.src = src
        self.text = src.text
        self.quote = quote

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
            found[key], at = self.value(at, depth + 1)
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
