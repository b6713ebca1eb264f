"""Helpers for the tests of single calls: small tools, and what a check makes of a call."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from mlx_stack_proxy.tool_validation.check import Checked, Options, check_call
from mlx_stack_proxy.tool_validation.conversation import Conversation
from mlx_stack_proxy.tool_validation.doubts import ValidCall, call_doubts, leaves
from mlx_stack_proxy.tool_validation.schemas import compile_schema
from mlx_stack_proxy.tool_validation.tools import ToolSet, tool_set

OPTIONS = Options()
STRING = {"type": "string"}
NONE: frozenset[str] = frozenset()


def tool(name: str, parameters: Any = None) -> dict[str, Any]:
    return {"type": "function", "function": {"name": name, "parameters": parameters}}


def parameters(*required: str, **properties: Any) -> dict[str, Any]:
    """An object schema: a type's name, or a whole schema, for each property."""
    return {
        "type": "object",
        "properties": {
            key: {"type": value} if isinstance(value, str) else value
            for key, value in properties.items()
        },
        "required": list(required),
    }


SEARCH = tool("search", parameters("query", query="string", limit="integer"))
WRITE = tool("write_file", parameters("path", "content", path="string", content="string"))
RUN = tool("run_terminal_command", parameters("command", command="string"))
TOOLS = tool_set([SEARCH, WRITE, RUN])


def one(schema: Any) -> ToolSet:
    """A tool set of one tool, `f`."""
    return tool_set([tool("f", schema)])


def check(
    arguments: str,
    tools: ToolSet = TOOLS,
    name: str | None = None,
    options: Options = OPTIONS,
) -> Checked:
    return check_call(name or tools.names[0], arguments, tools, options)


def mended(arguments: str, tools: ToolSet = TOOLS) -> tuple[Any, tuple[str, ...]]:
    """The arguments that would be delivered, and the rules; fails where the call does."""
    checked = check(arguments, tools)
    assert not checked.failures, checked.failures
    return json.loads(checked.arguments), checked.repairs


def kinds(
    arguments: str,
    tools: ToolSet = TOOLS,
    name: str | None = None,
    options: Options = OPTIONS,
) -> list[str]:
    """The kinds of what is wrong; a failing call comes back as it came."""
    checked = check(arguments, tools, name, options)
    if checked.failures:
        assert checked.arguments == arguments
        assert checked.repairs == ()
    return [failure.kind for failure in checked.failures]


def doubted(
    given: dict[str, Any], schema: Any, messages: Sequence[Any] = (), off: frozenset[str] = NONE
) -> list[str]:
    """The kinds of what is doubted of a valid call of `f`, whose parameters are `schema`."""
    assert check(json.dumps(given), one(schema)).failures == ()
    compiled = compile_schema(schema)
    found = leaves(given, compiled.schema)
    call = ValidCall("f", given, compiled, Conversation(messages), found)
    return [kind for kind, _ in call_doubts(call, off)]


def said(*texts: Any) -> list[dict[str, Any]]:
    """The messages of a conversation in which a user said these."""
    return [{"role": "user", "content": text} for text in texts]


def called(arguments: dict[str, Any], name: str = "f") -> dict[str, Any]:
    """The message of an assistant that made this call."""
    function = {"name": name, "arguments": json.dumps(arguments)}
    return {"role": "assistant", "tool_calls": [{"id": "c", "function": function}]}
