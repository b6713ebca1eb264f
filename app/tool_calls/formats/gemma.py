"""Gemma 4's `<|tool_call>call:name{…}` and FunctionGemma's own tags.

Arguments are `{key:<escape>text<escape>,count:5,nested:{…}}`: keys without quotes, text between
two marks.
"""

from __future__ import annotations

import json
import re
from typing import Any

from app.tool_calls.formats import python_calls
from app.tool_calls.formats.base import (
    MAX_CALLS,
    Begins,
    Block,
    Call,
    Format,
    Reader,
    Source,
    SpelledTools,
    Where,
)
from app.tool_calls.formats.json_calls import close
from app.tool_calls.formats.literals import MAX_NESTING, dumps, skip_space

_CALL = re.compile(r"\s*+(?:call\s*+:\s*+)?([^\s{}()<>,:]{1,200})\s*+(?=\{)")
_PYTHON = re.compile(r"\s*+(?:call\s*+:\s*+)?")
_KEY = re.compile(r"\s*+([^:{}\[\],<>]{1,200}?)\s*+:")
_PLAIN = re.compile(r"[^,{}\[\]<]*+")
_STRING = re.compile(r'"(?:[^"\\]|\\.)*+"')
_ONLY_CALLS = re.compile(r"\s*+(?:\Z|(?<=\n)call:)")
_WORDS = {"true": True, "false": False, "null": None, "None": None, "True": True, "False": False}


def _one(src: Source, pos: int, quote: str, closer: str) -> tuple[Call, int] | None:
    """`call:name{…}` at `pos`, or the same as Python; None where it is neither.

    What can't be read, up to `closer`, is passed on raw, with JSON's quotes.
    """
    match = _CALL.match(src.text, pos)
    if match is None:
        prefix = _PYTHON.match(src.text, pos)
        return python_calls.read_call(src, prefix.end() if prefix else pos)
    try:
        value, end = _Values(src, quote).members(match.end() + 1, 0)
    except ValueError:
        end = src.find_first((closer,), pos)
        return Call(match.group(1), src.text[match.end() : end].replace(quote, '"')), end
    return Call(match.group(1), dumps(value)), end


class _Values:
    """Reads values whose text stands between two marks; ValueError where it is no value."""

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
        if match is None or not word or word[0] in "\"'":
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


def _reader(opener: str, closer: str, quote: str) -> Reader:
    def read(src: Source, start: int) -> Block | None:
        calls: list[Call] = []
        end = start + len(opener)
        while len(calls) < MAX_CALLS:
            found = _one(src, end, quote, closer)
            if found is None:
                break
            calls.append(found[0])
            end = close(src.text, found[1], (",",))
        return Block(close(src.text, end, (closer,)), tuple(calls)) if calls else None

    return read


def _follow_bare(text: str, pos: int, tools: SpelledTools) -> Begins:
    """A tool's name, then its bracket."""
    name = python_calls.NAME.match(text, pos)
    if name is not None and name.end() < len(text) and text[name.end()] == "{":
        return Begins.NO if tools.resolve(name.group()) is None else Begins.YES
    return python_calls.follow(text, pos, tools)


def _read_bare(src: Source, start: int) -> Block | None:
    """What is left of a call where a server takes the tokens out: the reply's last lines."""
    found = _one(src, start, '<|"|>', "\n")
    if found is None or _ONLY_CALLS.match(src.text, found[1]) is None:
        return None
    return Block(found[1], (found[0],))


FORMATS = (
    Format("gemma4", ("<|tool_call>",), _reader("<|tool_call>", "<tool_call|>", '<|"|>')),
    Format("gemma4", ("call:",), _read_bare, Where.LINE, _follow_bare),
    Format(
        "functiongemma",
        ("<start_function_call>",),
        _reader("<start_function_call>", "<end_function_call>", "<escape>"),
    ),
)
