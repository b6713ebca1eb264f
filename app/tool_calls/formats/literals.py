"""Reading single values: balanced brackets, JSON values with their text, Python literals."""

from __future__ import annotations

import ast
import json
import re
import warnings
from collections.abc import Iterable
from typing import Any, NamedTuple

from app.tool_calls.formats.base import Source

# Deeper values than this are no arguments of a tool; the limit keeps `ast` and `json` shallow.
MAX_NESTING = 100
MAX_LITERAL = 200_000
_TOKEN_COST = 8

_DECODER = json.JSONDecoder(strict=False)
_SPACE = re.compile(r"\s*")
_TOKENS = re.compile(r'(?<!\\)(?:"(?:[^"\\]|\\.)*+"|\'(?:[^\'\\]|\\.)*+\')|[\[\](){}]', re.DOTALL)
_TRIPLE = re.compile(r'"""|\'\'\'')
_STRING = re.compile(
    r'(?<!\\)(?:"""(?:[^\\]|\\.)*?"""|\'\'\'(?:[^\\]|\\.)*?\'\'\''
    r'|"(?:[^"\\]|\\.)*+"|\'(?:[^\'\\]|\\.)*+\')',
    re.DOTALL,
)
_CLOSERS = {"(": ")", "[": "]", "{": "}"}
_WORDS = {
    "true": True,
    "false": False,
    "null": None,
    "none": None,
    "nan": float("nan"),
    "NaN": float("nan"),
    "Infinity": float("inf"),
    "inf": float("inf"),
}


class Member(NamedTuple):
    """A value of a JSON object and its text."""

    text: str
    value: Any


def skip_space(text: str, pos: int) -> int:
    """The index of the first character from `pos` on that is not whitespace."""
    match = _SPACE.match(text, pos)
    return match.end() if match else pos


def dumps(value: Any) -> str:
    """JSON text as models write it: unescaped Unicode. Raises TypeError for what JSON lacks."""
    return json.dumps(value, ensure_ascii=False)


def object_of(members: Iterable[tuple[str, Any]]) -> str:
    """An object's JSON text. A key that comes twice stays twice: the check says so."""
    return "{" + ", ".join(f"{dumps(key)}: {dumps(value)}" for key, value in members) + "}"


def balanced_end(src: Source, pos: int) -> int:
    """The index after the bracket that closes the one at `pos`; -1 where nothing does.

    Brackets in quoted strings (`"` and `'`) do not count.
    """
    # Going from token to token costs more than the searches that the budget is meant for.
    open_brackets: list[str] = []
    for match in _TOKENS.finditer(src.text, pos):
        token = match.group()
        if token in _CLOSERS:
            open_brackets.append(_CLOSERS[token])
            if len(open_brackets) > MAX_NESTING:
                src.spend(_TOKEN_COST * (match.end() - pos))
                return -1
        elif len(token) == 1:
            if not open_brackets or open_brackets.pop() != token:
                src.spend(_TOKEN_COST * (match.end() - pos))
                return -1
            if not open_brackets:
                return match.end()
    src.spend(_TOKEN_COST * (len(src.text) - pos))
    return -1


def json_object(text: str) -> dict[str, Any] | None:
    """The object whose JSON a text is; None where it is anything else."""
    try:
        value = json.loads(text) if text.startswith("{") else None
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def json_value(src: Source, pos: int) -> tuple[Member, int] | None:
    """The JSON value at `pos` and the index after it; None where it does not parse.

    Raw control characters in strings are accepted, and escaped in the text given back.
    """
    try:
        value, end = _DECODER.raw_decode(src.text, pos)
    except json.JSONDecodeError as error:
        src.spend(max(error.pos - pos, 0) + 1)
        return None
    except (RecursionError, ValueError):
        src.spend(len(src.text) - pos)
        return None
    return Member(_strict_text(src.text[pos:end], value), value), end


def _strict_text(text: str, value: Any) -> str:
    if isinstance(value, (dict, list, str)):
        try:
            json.loads(text)
        except ValueError:
            return dumps(value)
    return text


def json_members(src: Source, pos: int) -> tuple[dict[str, Member], int] | None:
    """The members of the JSON object at `pos`, each with its own text; None where it is broken."""
    text = src.text
    members: dict[str, Member] = {}
    at = skip_space(text, pos + 1)
    if text[at : at + 1] == "}":
        return members, at + 1
    while text[at : at + 1] == '"':
        key = json_value(src, at)
        if key is None:
            return None
        colon = skip_space(text, key[1])
        if text[colon : colon + 1] != ":":
            return None
        value = json_value(src, skip_space(text, colon + 1))
        if value is None:
            return None
        members[key[0].value] = value[0]
        at = skip_space(text, value[1])
        mark = text[at : at + 1]
        if mark == "}":
            return members, at + 1
        if mark != ",":
            return None
        at = skip_space(text, at + 1)
        if text[at : at + 1] == "}":  # a trailing comma
            return members, at + 1
    return None


def python_members(src: Source, pos: int) -> tuple[dict[str, Member], int] | None:
    """Like `json_members`, for a dict written as a Python literal."""
    end = balanced_end(src, pos)
    if end < 0 or end - pos > MAX_LITERAL:
        return None
    value = python_literal(src.text[pos:end])
    if not isinstance(value, dict):
        src.spend(end - pos)
        return None
    return {str(key): Member(dumps(item), item) for key, item in value.items()}, end


def python_literal(text: str) -> Any:
    """The value of a Python or JSON literal, with `true`, `null` … understood.

    Raises ValueError for anything else.
    """
    if len(text) > MAX_LITERAL:
        raise ValueError("too long for a literal")
    try:
        return evaluate(parse_expression(text.strip()))
    except TypeError as error:
        raise ValueError("not a literal") from error


def parse_expression(text: str) -> ast.expr:
    """The syntax tree of one Python expression. Raises ValueError where it is none."""
    try:
        # A stray backslash in a model's string is no reason to warn the operator.
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return ast.parse(escape_newlines(text), mode="eval").body
    except (SyntaxError, MemoryError, RecursionError) as error:
        raise ValueError("not Python") from error


def parse_statements(text: str) -> list[ast.stmt]:
    """The syntax trees of a piece of Python. Raises ValueError where it is none."""
    if len(text) > MAX_LITERAL:
        raise ValueError("too long")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return ast.parse(escape_newlines(text)).body
    except (SyntaxError, MemoryError, RecursionError) as error:
        raise ValueError("not Python") from error


def escape_newlines(text: str) -> str:
    """Python text whose quoted strings may hold raw line breaks, made into valid Python."""
    if "\n" not in text and "\r" not in text:
        return text
    return _STRING.sub(_escape_string, text)


def _escape_string(match: re.Match[str]) -> str:
    string = match.group()
    if _TRIPLE.match(string):
        return string
    # A backslash before a line break joins the lines in Python; models mean the break itself.
    return string.replace("\r\n", "\\n").replace("\n", "\\n").replace("\r", "\\r")


def evaluate(node: ast.expr, depth: int = 0) -> Any:
    """The value of a literal's syntax tree. Raises ValueError for anything that is not one."""
    if depth > MAX_NESTING:
        raise ValueError("nested too deeply")
    if isinstance(node, ast.Constant) and not isinstance(node.value, (bytes, complex)):
        return None if node.value is ... else node.value
    if isinstance(node, ast.Name) and node.id in _WORDS:
        return _WORDS[node.id]
    if isinstance(node, (ast.List, ast.Tuple)):
        return [evaluate(item, depth + 1) for item in node.elts]
    if isinstance(node, ast.Dict):
        return {
            _key(key, depth): evaluate(value, depth + 1)
            for key, value in zip(node.keys, node.values, strict=True)
        }
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, (ast.USub, ast.UAdd)):
        number = evaluate(node.operand, depth + 1)
        if isinstance(number, (int, float)) and not isinstance(number, bool):
            return -number if isinstance(node.op, ast.USub) else number
    raise ValueError("not a literal")


def _key(node: ast.expr | None, depth: int) -> str:
    if node is None:
        raise ValueError("not a literal")
    key = evaluate(node, depth + 1)
    if isinstance(key, str):
        return key
    if isinstance(key, (list, dict)):
        raise ValueError("not a key")
    return dumps(key)
