"""Normalises the fields of a chunk to OpenAI's form, one function for each kind of field."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

import orjson

REASONING_FIELDS: Final = ("reasoning_content", "reasoning", "thinking")
_FINISH_REASONS: Final = ("stop", "length", "tool_calls", "content_filter", "function_call")

# Finish reasons of a reply that was cut off: OpenRouter's, vLLM's and SGLang's, DeepSeek's.
_BROKEN: Final = ("error", "abort", "insufficient_system_resource")

_BY_NAME: Final[Mapping[str, str]] = {
    **{reason: reason for reason in _FINISH_REASONS},
    **dict.fromkeys(("max_tokens", "max_length", "model_length"), "length"),
    **dict.fromkeys(("tool_use", "tool_call"), "tool_calls"),
    **dict.fromkeys(("safety", "recitation", "refusal"), "content_filter"),
}
MOST: Final = 2**53  # every client represents integers up to here exactly
_COUNTS: Final = ("prompt_tokens", "completion_tokens", "total_tokens")
_DETAILS: Final = ("prompt_tokens_details", "completion_tokens_details")
OBJECT_OR_NONE: Final = (dict, type(None))


def error(payload: Mapping[str, Any], choices: list[Any]) -> Any:
    """Return the error in a chunk, or None."""
    if error := payload.get("error"):
        return error
    for choice in choices:
        if isinstance(choice, dict):
            if choice.get("error"):
                return choice["error"]
            if (reason := choice.get("finish_reason")) in _BROKEN:
                return f"the model server ended the reply by {reason!r}"
    if "choices" in payload:
        return None
    if "error" in (payload.get("object"), payload.get("type")):  # vLLM's form
        return payload
    return payload.get("detail")  # FastAPI's form


def finish_reason(reason: Any) -> str | None:
    """Return OpenAI's name for a finish reason; "stop" for an unknown one."""
    if reason is None or reason == "":
        return None
    return _BY_NAME.get(str(reason).lower(), "stop")


def delta(raw_delta: Mapping[str, Any]) -> dict[str, Any]:
    """Return a normalised delta, without the fields that can't be normalised.

    Reasoning among the content's parts becomes ``reasoning_content``.
    """
    formed = {}
    for key, value in raw_delta.items():
        formed_value = _FIELDS[key](value) if key in _FIELDS and value is not None else value
        if formed_value is not None or value is None:
            formed[key] = formed_value
    content = raw_delta.get("content")
    if content is None or isinstance(content, str):
        return formed
    _, thoughts, _ = _parts(content)
    if thoughts and not any(formed.get(field) for field in REASONING_FIELDS):
        formed["reasoning_content"] = thoughts
    return formed


def usage(raw_usage: Any) -> dict[str, Any] | None:
    """Return a usage with all its counts; None if it has none."""
    if not isinstance(raw_usage, dict):
        return None
    prompt = whole_number(raw_usage.get("prompt_tokens", raw_usage.get("input_tokens")))
    output = whole_number(raw_usage.get("completion_tokens", raw_usage.get("output_tokens")))
    total = whole_number(raw_usage.get("total_tokens"))
    if prompt is output is total is None:
        return None
    prompt, output = prompt or 0, output or 0
    odd = {key for key in _DETAILS if type(raw_usage.get(key)) not in OBJECT_OR_NONE}
    counts = (prompt, output, prompt + output if total is None else total)
    return {key: raw_usage[key] for key in raw_usage if key not in odd} | dict(
        zip(_COUNTS, counts, strict=True)
    )


def is_usage(usage: Mapping[str, Any]) -> bool:
    """Whether a usage is in form."""
    for name in _COUNTS:
        if type(count := usage.get(name)) is not int or not 0 <= count <= MOST:
            return False
    return len(usage) == len(_COUNTS) or all(type(usage.get(n)) in OBJECT_OR_NONE for n in _DETAILS)


def whole_number(value: Any) -> int | None:
    """Return a number, float or numeric text as an integer; None for any other value."""
    if type(value) is int:
        return value if abs(value) <= MOST else None
    if isinstance(value, bool):
        return None
    try:
        number = int(value)
    except (TypeError, ValueError, OverflowError):
        return None
    return number if abs(number) <= MOST else None


def _text(value: Any) -> Any:
    """Return content as text; parts that hold more than text stay unchanged."""
    if isinstance(value, (str, bool)):
        return value if isinstance(value, str) else None
    text, _, has_more = _parts(value)
    if has_more:
        return value
    is_part = isinstance(value, list) or (isinstance(value, dict) and "type" in value)
    # Any other value is a number, or JSON that the client asked for and a server has parsed.
    return text if is_part else orjson.dumps(value).decode()


def _parts(content: Any) -> tuple[str, str, bool]:
    """Return the text and the reasoning in a content's parts, and whether there is more."""
    text, thoughts, has_more = "", "", False
    parts = [content] if isinstance(content, dict) and "type" in content else content
    for part in parts if isinstance(parts, list) else ():
        if isinstance(part, str):
            text += part
        elif isinstance(part, dict) and isinstance(part.get("text"), str):
            text += part["text"]
        elif isinstance(part, dict) and part.get("type") == "thinking":  # Mistral's form
            thought = part.get("thinking")
            thoughts += thought if isinstance(thought, str) else _parts(thought)[0]
        elif part is not None:
            has_more = True
    return text, thoughts, has_more


def _calls(calls: Any) -> list[dict[str, Any]] | None:
    if isinstance(calls, dict):
        calls = [calls] if calls else []
    if not isinstance(calls, list):
        return None
    return [_call(call) for call in calls if isinstance(call, dict)]


def _call(call: dict[str, Any]) -> dict[str, Any]:
    """Return a call with a ``function`` and without nulls, which some clients append as text.

    Some servers put name and arguments at the call's top level.
    """
    if isinstance(function := call.get("function"), dict):
        formed = _without_nulls(call)
        formed["function"] = _without_nulls(function)
        return formed
    function = {key: call[key] for key in ("name", "arguments") if key in call}
    fields = {key: call[key] for key in call if key not in function}
    return {**fields, "function": function if "name" in function else None}


def _without_nulls(fields: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in fields.items() if value is not None}


_FIELDS: Final[Mapping[str, Callable[[Any], Any]]] = {
    "content": _text,
    "refusal": lambda value: value if isinstance(value, str) else None,
    "tool_calls": _calls,
    "function_call": lambda value: value if isinstance(value, dict) else None,
    **dict.fromkeys(
        REASONING_FIELDS,
        lambda value: value if isinstance(value, str) else _parts(value)[0] or None,
    ),
}
