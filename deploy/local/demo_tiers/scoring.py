"""What a reply to a question is: exact, valid but wrong, or which visible failure."""

import json
import re
from typing import Any

from demo_tiers import tools

RIGHT = "exact"
# Valid calls, or plain text, that no check of syntax or schema can tell from a right reply.
SILENT = ["wrong_value", "wrong_tool", "text_instead_of_call"]
VISIBLE = [
    "broken_json", "missing_argument", "wrong_type", "not_in_enum", "extra_argument",
    "unknown_tool", "call_as_text", "repeated_calls", "repeated_text", "endless_thinking",
    "cut_by_limit", "empty", "connection_dropped", "server_error",
]  # fmt: skip
AS_TEXT = re.compile(
    r"```|\[TOOL_REQUEST\]|<function=|<tool_call>|Action( Input)?:|\"name\":"
    r"|\bI will call \w+ with \{"
)
_TYPES: dict[str, Any] = {  # what isinstance() takes
    "string": (str,), "number": (int, float), "integer": (int,), "boolean": (bool,),
    "array": (list,), "object": (dict,),
}  # fmt: skip


def classify(
    body: dict[str, Any], tool: str, arguments: dict[str, Any], offered: list[str] | None = None
) -> str:
    """The kind of a chat completion's body, given the call that was expected."""
    if "choices" not in body:
        return "server_error"
    choice = body["choices"][0]
    message = choice["message"]
    calls = message.get("tool_calls") or []
    if not calls:
        return _without_calls(choice, message)
    if len(calls) > 1:
        return "repeated_calls"
    function = calls[0]["function"]
    problem = check(function["name"], function["arguments"], offered)
    if problem:
        return problem
    if function["name"] != tool:
        return "wrong_tool"
    return RIGHT if same(json.loads(function["arguments"]), arguments) else "wrong_value"


def check(name: str, arguments: str, offered: list[str] | None = None) -> str | None:
    """What a schema check would find wrong with a call, or None."""
    if name not in (tools.NAMES if offered is None else offered):
        return "unknown_tool"
    try:
        parsed = json.loads(arguments)
    except ValueError:
        return "broken_json"
    if not isinstance(parsed, dict):
        return "wrong_type"
    schema = tools.schema(name)
    if any(key not in parsed for key in schema["required"]):
        return "missing_argument"
    for key, value in parsed.items():
        if key not in schema["properties"]:
            return "extra_argument"
        if not _fits(value, schema["properties"][key]):
            return "wrong_type"
        if value not in schema["properties"][key].get("enum", [value]):
            return "not_in_enum"
    return None


def same(got: Any, wanted: Any) -> bool:
    """Equal, and not only as True equals 1."""
    if isinstance(got, bool) or isinstance(wanted, bool):
        return got is wanted
    if isinstance(wanted, dict):
        return isinstance(got, dict) and got.keys() == wanted.keys() and all(
            same(got[key], wanted[key]) for key in wanted)  # fmt: skip
    return bool(got == wanted)


def _fits(value: Any, schema: dict[str, Any]) -> bool:
    if isinstance(value, bool) and schema["type"] != "boolean":
        return False
    if not isinstance(value, _TYPES[schema["type"]]):
        return False
    items = schema.get("items")
    return not items or all(_fits(item, items) for item in value)


def _without_calls(choice: dict[str, Any], message: dict[str, Any]) -> str:
    text = message.get("content") or ""
    thought = message.get("reasoning") or message.get("reasoning_content") or ""
    if choice.get("finish_reason") == "length":
        if thought and not text:
            return "endless_thinking"
        return "repeated_text" if periodic(text) else "cut_by_limit"
    if choice.get("finish_reason") == "tool_calls":
        return "broken_json"
    if not text.strip():
        return "empty"
    if AS_TEXT.search(text):
        return "call_as_text"
    return "repeated_text" if periodic(text) else "text_instead_of_call"


def periodic(text: str, laps: int = 4) -> bool:
    """Whether the text ends in the same piece `laps` times."""
    text = text.rstrip()
    for period in range(1, len(text) // laps + 1):
        end = text[-period:]
        if text.endswith(end * laps):
            return True
    return False
