"""Calls written as Python: `name(key="value")`, alone or in a list.

Bare (Llama 3.2), behind `<|python_start|>` (Llama 4) or `<|python_tag|>` (Llama 3.1), in the tags
of LFM2 and OLMo 3, in `[Calling tool: …]`, and as Gemma 2/3 write it: in a ```` ```tool_code ````
fence or behind `tool_code =`.
"""

from __future__ import annotations

import ast
import re
from typing import Any

from .base import MAX_CALLS, Begins, Block, Call, Format, Reader, Source, SpelledTools, Where
from .json_calls import close
from .literals import (
    MAX_LITERAL,
    balanced_end,
    dumps,
    evaluate,
    parse_expression,
    parse_statements,
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


def _follow_tag(text: str, pos: int, tools: SpelledTools) -> Begins:
    """A list, or `name(` of a tool."""
    at = skip_space(text, pos)
    return Begins.YES if text.startswith("[", at) else follow(text, at, tools)


def _tagged(opener: str, *closers: str) -> Reader:
    def read(src: Source, start: int) -> Block | None:
        found = read_calls(src, skip_space(src.text, start + len(opener)))
        if found is None:
            return None
        return Block(close(src.text, found[1], closers), tuple(found[0]))

    return read


def _read_python_tag(src: Source, start: int) -> Block | None:
    """The built-in tools are called as `brave_search.call(query="…")`."""
    block = _tagged("<|python_tag|>")(src, start)
    if block is None:
        return None
    names = [call.name for call in block.calls]
    bare = [n if src.tools.resolve(n) is not None else n.removesuffix(".call") for n in names]
    calls = zip(bare, block.calls, strict=True)
    return Block(block.end, tuple(Call(name, call.arguments) for name, call in calls))


def _read_list(src: Source, start: int) -> Block | None:
    """`[a(x=1), b()]`, also several, where that is the whole reply."""
    calls: list[Call] = []
    end = start
    while len(calls) < MAX_CALLS and (found := read_calls(src, skip_space(src.text, end))):
        calls += found[0]
        end = found[1]
    end = close(src.text, end, ("<|eom_id|>", "<|eot_id|>"))
    return Block(end, tuple(calls)) if calls and src.is_whole_reply(start, end) else None


# Code that does nothing but call tools

_FENCE_END = re.compile(r"\n[ \t]*+```[ \t]*+(?=\n|\Z)")
_ASSIGNED = re.compile(r"tool_code[ \t]*+[=:\n]\s*+(?:print\(\s*+)?(?:default_api\.)?")
_PRINTED = re.compile(r"\s*+\)?(?:\s*+print\(\s*+tool_code\s*+\))?")


def _read_tool_code(src: Source, start: int) -> Block | None:
    """A fenced block of Python that does nothing but call tools."""
    begin = src.text.find("\n", start)
    if begin < 0:
        return None
    end = _FENCE_END.search(src.text, begin)
    body = src.text[begin + 1 : end.start() + 1 if end else len(src.text)]
    src.spend(len(body))  # reading Python is not cheap, be it in vain or not
    calls = _code_calls(src, body)
    return Block(end.end() if end else len(src.text), tuple(calls)) if calls else None


def _code_calls(src: Source, code: str) -> list[Call]:
    """The tool calls of a piece of Python; none where it does anything else, too."""
    calls: list[Call] = []
    for statement in parse_statements(code.strip()):
        if not isinstance(statement, (ast.Expr, ast.Assign)):
            return []
        value = statement.value
        for item in value.elts if isinstance(value, ast.List) else [value]:
            node = _printed(item) if src.tools.resolve("print") is None else item
            if isinstance(node, ast.Name):
                continue
            if not isinstance(node, ast.Call):
                return []
            name = ast.unparse(node.func)
            calls.append(Call(name, dumps(bind(src, name, node))))
    return calls


def _printed(node: ast.expr) -> ast.expr:
    """What is printed, if it is a `print` of one thing; else the node itself."""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "print":
        return node.args[0] if len(node.args) == 1 and not node.keywords else node
    return node


def _follow_assignment(text: str, pos: int, tools: SpelledTools) -> Begins:
    """`tool_code = name(`, or `name(` on the next line, where the name is a tool's."""
    found = _ASSIGNED.match(text, pos - len("tool_code"))
    if found is None:
        return Begins.MAYBE if skip_space(text, pos) == len(text) else Begins.NO
    rest = text[found.end() :]
    return Begins.MAYBE if "print(".startswith(rest) else follow(text, found.end(), tools)


def _read_assignment(src: Source, start: int) -> Block | None:
    """`tool_code = name(…)` or `tool_code` and `name(…)` below it, printed or not."""
    begin = _ASSIGNED.match(src.text, start)
    found = read_call(src, begin.end()) if begin else None
    end = _PRINTED.match(src.text, found[1]) if found else None
    return Block(end.end(), (found[0],)) if found and end else None


FORMATS = (
    Format("llama_python_tag", ("<|python_tag|>",), _read_python_tag),
    Format("pythonic", ("<|python_start|>",), _tagged("<|python_start|>", "<|python_end|>")),
    Format("pythonic", ("[",), _read_list, Where.JSON, follow_spaced),
    Format("lfm2", ("<|tool_call_start|>",), _tagged("<|tool_call_start|>", "<|tool_call_end|>")),
    Format(
        "olmo3",
        ("<function_calls>",),
        _tagged("<function_calls>", "</function_calls>"),
        follow=_follow_tag,
    ),
    *(
        Format(
            "xml_elements", (f"<{one}>",), _tagged(f"<{one}>", f"</{one}>"), follow=follow_spaced
        )
        for one in ("tool_use", "use_tool", "function_call", "invoke", "tool_calls")
    ),
    *(
        Format("calling_tool_bracket", (one,), _tagged(one, "]"), follow=follow_spaced)
        for one in ("[Calling tool:", "[Calling tool=")
    ),
    Format("gemma4", ("<|tool_call>",), _tagged("<|tool_call>", "<tool_call|>")),
    Format(
        "functiongemma",
        ("<start_function_call>",),
        _tagged("<start_function_call>", "<end_function_call>"),
    ),
    Format(
        "gemma_tool_code",
        ("```tool_code", "```tool_call", "```tool_calls"),
        _read_tool_code,
        Where.FENCE,
    ),
    Format("gemma_tool_code", ("tool_code",), _read_assignment, Where.LINE, _follow_assignment),
)
