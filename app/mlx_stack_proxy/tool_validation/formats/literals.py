"""Reading single values: balanced brackets, JSON values with their text, Python literals."""

from __future__ import annotations

import ast
import json
import re
import warnings
from collections.abc import Iterable
from typing import Any

from ..json_text import Unreadable
from ..lenient_json import Reader
from .base import Source

# Deeper values than this are no arguments of a tool; the limit keeps `ast` and `json` shallow.
MAX_NESTING = 100
MAX_LITERAL = 200_000
_TOKEN_COST = 8

_BRACKETS = frozenset({"missing_closer", "extra_closer"})
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


def json_members(src: Source, pos: int) -> tuple[dict[str, Any], int] | None:
    """The JSON object at `pos`, and the index after it; None where none can be read."""
    found = json_value(src, pos)
    return (found[0], found[1]) if found is not None and isinstance(found[0], dict) else None


def json_value(src: Source, pos: int) -> tuple[Any, int] | None:
    """The JSON value at `pos`, and the index after it; None where it can't be read.

    Also with what models write instead: single quotes, Python's literals, a trailing comma, raw
    line breaks, keys without quotes. Not with a bracket missing, which the check of arguments
    judges, and not where one key has two values.
    """
    reader = Reader(src.text, pos, max_depth=MAX_NESTING)
    try:
        value = reader.value()
    except (Unreadable, RecursionError):
        src.spend(max(reader.position - pos, 0) + 1)
        return None
    if not _BRACKETS.isdisjoint(reader.used):
        src.spend(reader.position - pos)
        return None
    return value, reader.position


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
