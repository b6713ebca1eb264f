"""Llama 3: `<|python_tag|>` before JSON or a built-in tool, and `<function=name>{…}</function>`."""

from __future__ import annotations

import re

from app.tool_calls.formats import python_calls, qwen_xml
from app.tool_calls.formats.base import Block, Call, Format, Source, Where
from app.tool_calls.formats.json_calls import close, object_text, read_calls
from app.tool_calls.formats.literals import skip_space

PYTHON_TAG = "<|python_tag|>"

_FUNCTION = re.compile(r"<function=\s*+([^>\n]{1,200}?)\s*+>")
_ENDS = ("<|eom_id|>", "<|eot_id|>", PYTHON_TAG)


def read_python_tag(src: Source, start: int) -> Block | None:
    """`{"name": …}` calls, separated by `;`, or `name.call(key="value")`."""
    pos = start + len(PYTHON_TAG)
    found = read_calls(src, pos, _ENDS) or python_calls.read_calls(src, pos)
    if found is None:
        return None
    # The built-in tools are called as `brave_search.call(query="…")`.
    calls = tuple(
        Call(call.name.removesuffix(".call"), call.arguments)
        if src.tools.resolve(call.name) is None
        else call
        for call in found[0]
    )
    return Block(found[1], calls)


def read_function_tag(src: Source, start: int) -> Block | None:
    """`<function=name>` and a JSON object."""
    match = _FUNCTION.match(src.text, start)
    if match is None or not src.text.startswith("{", skip_space(src.text, match.end())):
        return None
    stop = ("</function>", "<function=")
    arguments, end = object_text(src, match.end(), stop)
    return Block(close(src.text, end, stop[:1]), (Call(match.group(1), arguments),))


FORMATS = (
    Format("llama_python_tag", (PYTHON_TAG,), read_python_tag),
    Format("llama_function_tag", (qwen_xml.OPENER,), read_function_tag, Where.TAG),
)
