"""Gemma 4's `<|tool_call>call:name{…}` and FunctionGemma's own tags.

Arguments are `{key:<escape>text<escape>,count:5,nested:{…}}`: keys without quotes, text between
two marks.
"""

from __future__ import annotations

import re

from . import python_calls
from .base import MAX_CALLS, Begins, Block, Call, Format, Reader, Source, SpelledTools, Where
from .json_calls import close
from .literals import dumps, json_members

_CALL = re.compile(r"\s*+(?:call\s*+:\s*+)?([^\s{}()<>,:]{1,200})\s*+(?=\{)")
_PYTHON = re.compile(r"\s*+(?:call\s*+:\s*+)?")
_STRING = r'"(?:[^"\\]|\\.)*+"'
# A value without quotes that is no number and none of JSON's words.
_PLAIN = re.compile(
    rf"{_STRING}|(?<=[:,\[])\s*+(?!(?:true|false|null|None|True|False)\b)"
    r"([^\W\d][^,{}\[\]<:\"']*+)(?=[,}\]])"
)
_ONLY_CALLS = re.compile(r"\s*+(?:\Z|(?<=\n)call:)")


def _one(src: Source, pos: int, quote: str, closer: str) -> tuple[Call, int] | None:
    """`call:name{…}` at `pos`, or the same as Python; None where it is neither.

    What can't be read, up to `closer`, is passed on raw, with JSON's quotes.
    """
    match = _CALL.match(src.text, pos)
    if match is None:
        prefix = _PYTHON.match(src.text, pos)
        return python_calls.read_call(src, prefix.end() if prefix else pos)
    end = _object_end(src.text, match.end(), quote)
    if end < 0:
        src.spend(len(src.text) - pos)
        end = src.find_first((closer,), pos)
        return Call(match.group(1), src.text[match.end() : end].replace(quote, '"')), end
    quoted = re.compile(re.escape(quote) + "(.*?)" + re.escape(quote), re.DOTALL)
    written = quoted.sub(lambda text: dumps(text[1]), src.text[match.end() : end])
    found = json_members(Source(_plain_words(written), src.tools), 0)
    return Call(match.group(1), dumps(found[0]) if found else written), end


def _object_end(text: str, pos: int, quote: str) -> int:
    """The index behind the object at `pos`; -1 where nothing closes it."""
    mark, depth = re.escape(quote), 0
    tokens = re.compile(f"{mark}.*?{mark}|{_STRING}|[{{}}\\[\\]]", re.DOTALL)
    for token in tokens.finditer(text, pos):
        depth += (token[0] in "{[") - (token[0] in "}]")
        if not depth:
            return token.end()
    return -1


def _plain_words(written: str) -> str:
    """Words without quotes are texts here, but for JSON's own."""
    return _PLAIN.sub(lambda word: dumps(word[1].strip()) if word[1] else word[0], written)


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
