"""Calls written as Python: `name(key="value")`, alone or in a list."""

from __future__ import annotations

import ast
import re
from typing import Any

from app.tool_calls.formats.base import MAX_CALLS, Begins, Call, Source, SpelledTools
from app.tool_calls.formats.literals import (
    MAX_LITERAL,
    balanced_end,
    dumps,
    evaluate,
    parse_expression,
    skip_space,
)

NAME = re.compile(r"[^\W\d][\w.\-]*")
_NUMBERED = "parameter_"
_PARAMETER = re.compile(
    r"\"(?:[^\"\\]|\\.)*\"|'(?:[^'\\]|\\.)*'|([(,]\s*)([^\W\d][\w-]*)\s*(?:=(?!=)|:)", re.DOTALL
)
_BETWEEN = re.compile(r"[\s,;]*")


def read_calls(src: Source, pos: int) -> tuple[list[Call], int] | None:
    """The Python calls from `pos` on, `[a(x=1), b()]` or `a(x=1)`, and the index after them.

    None where there is none, where a list is not closed, or where one of them is not a call with
    literal arguments.
    """
    text = src.text
    at = skip_space(text, pos)
    listed = text.startswith("[", at)
    if listed:
        at = skip_space(text, at + 1)
    calls: list[Call] = []
    end = at
    while len(calls) < MAX_CALLS:
        call = read_call(src, at)
        if call is None:
            break
        calls.append(call[0])
        end = call[1]
        between = _BETWEEN.match(text, end)
        at = between.end() if between else end
    if listed:
        if not text.startswith("]", at):
            return None
        end = at + 1
    return (calls, end) if calls else None


def read_call(src: Source, pos: int) -> tuple[Call, int] | None:
    """The call at `pos` and the index after it; None where there is none."""
    name = NAME.match(src.text, pos)
    if name is None:
        return None
    opening = skip_space(src.text, name.end())
    if not src.text.startswith("(", opening):
        return None
    end = balanced_end(src, opening)
    if end < 0 or end - opening > MAX_LITERAL:
        return None
    arguments = call_arguments(src, name.group(), src.text[opening:end])
    if arguments is None:
        src.spend(end - pos)
        return None
    return Call(name.group(), arguments), end


def call_arguments(src: Source, name: str, written: str) -> str | None:
    """The JSON text of the arguments in `written`, brackets included; None if not literals."""
    for text, names in ((written, ()), _rename(written)):
        try:
            tree = parse_expression("_" + text)
            if isinstance(tree, ast.Call):
                bound = bind(src, name, tree)
                return dumps({_renamed(key, names): value for key, value in bound.items()})
        except (ValueError, TypeError):
            continue
    return None


def _rename(written: str) -> tuple[str, tuple[str, ...]]:
    """`written` with parameters numbered, and their names.

    `from=`, `max-n=` and `city: "Paris"` are no Python.
    """
    names: list[str] = []

    def number(match: re.Match[str]) -> str:
        if match.group(2) is None:
            return match.group()  # a string
        names.append(match.group(2))
        return f"{match.group(1)}{_NUMBERED}{len(names) - 1}="

    return _PARAMETER.sub(number, written), tuple(names)


def _renamed(key: str, names: tuple[str, ...]) -> str:
    return names[int(key.removeprefix(_NUMBERED))] if names and _NUMBERED in key else key


def bind(src: Source, name: str, call: ast.Call) -> dict[str, Any]:
    """The arguments of a parsed call by name. Raises ValueError where they are not literals.

    A value without a name is taken where only one parameter can be meant, and an object alone
    is taken as all the arguments.
    """
    bound: dict[str, Any] = {}
    for keyword in call.keywords:
        if keyword.arg is None or keyword.arg in bound:
            raise ValueError("not plain keyword arguments")
        bound[keyword.arg] = evaluate(keyword.value)
    if not call.args:
        return bound
    if len(call.args) > 1 or bound:
        raise ValueError("values without names")
    value = evaluate(call.args[0])
    parameters = list(src.tools.properties(name))
    if isinstance(value, dict) and (not parameters or all(key in parameters for key in value)):
        return value
    if len(parameters) != 1:
        raise ValueError("a value without a name")
    return {parameters[0]: value}


def follow(text: str, pos: int, tools: SpelledTools) -> Begins:
    """Whether a call of one of the tools begins at `pos`: its name, then a bracket."""
    name = NAME.match(text, pos)
    if name is None:
        return Begins.MAYBE if skip_space(text, pos) == len(text) else Begins.NO
    if name.end() == len(text):
        return Begins.MAYBE if tools.could_start(name.group()) else Begins.NO
    if tools.resolve(name.group()) is None:
        return Begins.NO
    at = skip_space(text, name.end())
    if at == len(text):
        return Begins.MAYBE
    return Begins.YES if text[at] == "(" else Begins.NO


def follow_spaced(text: str, pos: int, tools: SpelledTools) -> Begins:
    """The same; blanks may come first."""
    return follow(text, skip_space(text, pos), tools)
