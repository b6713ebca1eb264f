"""Gemma: ```` ```tool_code ````, Gemma 4's `<|tool_call>call:…`, FunctionGemma's own tags."""

from __future__ import annotations

import ast
import re

from app.tool_calls.formats import gemma_values, python_calls
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
from app.tool_calls.formats.json_calls import close, read_calls
from app.tool_calls.formats.literals import dumps, parse_statements, skip_space

GEMMA4 = "<|tool_call>"
FUNCTION = "<start_function_call>"
BARE = "call:"  # what is left of a call where a server takes the special tokens out
FENCES = ("```tool_code", "```tool_call", "```tool_calls")
ASSIGNMENT = "tool_code"

_CALL = re.compile(r"\s*(?:call\s*:\s*)?")
_ASSIGNED = re.compile(r"[ \t]*[=:\n]\s*(?:print\(\s*)?(?:default_api\.)?")
_ONLY_CALLS = re.compile(r"[ \t]*+(?:\s*+\Z|\n\s*+(?=call:))")
_FENCE_END = re.compile(r"\n[ \t]*```[ \t]*(?=\n|\Z)")
_PRINTED = re.compile(r"\s*(?:print\(\s*tool_code\s*\)\s*)?")


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
        if calls:
            return Block(close(src.text, end, (closer,)), tuple(calls))
        listed = read_calls(src, end, (closer, opener))
        if listed is None:
            return None
        return Block(close(src.text, listed[1], (closer,)), tuple(listed[0]))

    return read


def _one(src: Source, pos: int, quote: str, closer: str) -> tuple[Call, int] | None:
    prefix = _CALL.match(src.text, pos)
    at = prefix.end() if prefix else pos
    return gemma_values.read_call(src, at, quote, closer) or python_calls.read_call(src, at)


def follow_bare(text: str, pos: int, tools: SpelledTools) -> Begins:
    """A tool's name, then its bracket."""
    name = python_calls.NAME.match(text, pos)
    if name is not None and name.end() < len(text) and text[name.end()] == "{":
        return Begins.NO if tools.resolve(name.group()) is None else Begins.YES
    return python_calls.follow(text, pos, tools)


def read_bare(src: Source, start: int) -> Block | None:
    """One call of those that the reply ends with."""
    found = _one(src, start, '<|"|>', "\n")
    if found is None or _ONLY_CALLS.match(src.text, found[1]) is None:
        return None
    return Block(found[1], (found[0],))


def read_tool_code(src: Source, start: int) -> Block | None:
    """A fenced block of Python that does nothing but call tools."""
    begin = src.text.find("\n", start)
    if begin < 0:
        return None
    end = _FENCE_END.search(src.text, begin)
    body = src.text[begin + 1 : end.start() + 1 if end else len(src.text)]
    src.spend(len(body))  # reading Python is not cheap, be it in vain or not
    calls = code_calls(src, body)
    return Block(end.end() if end else len(src.text), tuple(calls)) if calls else None


def code_calls(src: Source, code: str) -> list[Call]:
    """The tool calls of a piece of Python; none where it does anything else, too."""
    calls: list[Call] = []
    for statement in parse_statements(code.strip()):
        if not isinstance(statement, (ast.Expr, ast.Assign)):
            return []
        value = statement.value
        items = value.elts if isinstance(value, ast.List) else [value]
        for item in items:
            if _prints_a_name(item):
                continue
            call = _call(src, item)
            if call is None:
                return []
            calls.append(call)
    return calls


def _prints_a_name(node: ast.expr) -> bool:
    return _printed(node) is not None and isinstance(_printed(node), ast.Name)


def _printed(node: ast.expr) -> ast.expr | None:
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "print":
        return node.args[0] if len(node.args) == 1 and not node.keywords else None
    return None


def _call(src: Source, node: ast.expr) -> Call | None:
    if src.tools.resolve("print") is None:
        node = _printed(node) or node
    if not isinstance(node, ast.Call):
        return None
    name = ast.unparse(node.func)
    try:
        return Call(name, dumps(python_calls.bind(src, name, node)))
    except ValueError:
        return None


def follow_assignment(text: str, pos: int, tools: SpelledTools) -> Begins:
    """`tool_code = name(`, or `name(` on the next line, where the name is a tool's."""
    match = _ASSIGNED.match(text, pos)
    if match is None:
        at = skip_space(text, pos)
        return Begins.MAYBE if at == len(text) else Begins.NO
    if "print(".startswith(text[match.end() :][:6]) and len(text) - match.end() < len("print("):
        return Begins.MAYBE
    return python_calls.follow(text, match.end(), tools)


def read_assignment(src: Source, start: int) -> Block | None:
    """`tool_code = name(…)` or `tool_code` and `name(…)` below it, printed or not."""
    match = _ASSIGNED.match(src.text, start + len(ASSIGNMENT))
    found = python_calls.read_call(src, match.end()) if match else None
    if match is None or found is None:
        return None
    end = found[1]
    if "print(" in match.group():
        end = close(src.text, end, (")",))
    printed = _PRINTED.match(src.text, end)
    return Block(printed.end() if printed and printed.group().strip() else end, (found[0],))


FORMATS = (
    Format("gemma4", (GEMMA4,), _reader(GEMMA4, "<tool_call|>", '<|"|>')),
    Format("gemma4", (BARE,), read_bare, Where.LINE, follow_bare),
    Format("functiongemma", (FUNCTION,), _reader(FUNCTION, "<end_function_call>", "<escape>")),
    Format("gemma_tool_code", FENCES, read_tool_code, Where.FENCE),
    Format("gemma_tool_code", (ASSIGNMENT,), read_assignment, Where.LINE, follow_assignment),
)
