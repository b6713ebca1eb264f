"""Tells the model, in a retry after a bad tool call, what was wrong.

The messages of each retry are made anew from the client's own; no client ever sees a correction.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

import orjson

from ..printable import abridged
from ..wire.reply import ChoiceReply, Reply, ToolCall, is_object
from . import hints
from .verdicts import CallFailure, InvalidToolCall

MAX_QUOTED = 600  # characters of a bad output: enough to see the mistake, too few for a page
MAX_LISTED_TOOLS = 40
MAX_SCHEMA = 6000  # characters of one tool's schema, which is told before the last retry
TEMPERATURE_STEP = 0.1
MAX_TEMPERATURE = 2.0

# Function names that every chat template and server accepts (OpenAI's own rule).
_REPLAYABLE_NAME = re.compile(r"[A-Za-z0-9_.-]{1,64}")
_NOT_RUN = "not executed: another call of the same response was invalid"


def corrected(
    body: Mapping[str, Any],
    reply: Reply,
    verdict: InvalidToolCall,
    *,
    role: str,
    placement: str,
    with_schema: bool,
) -> list[dict[str, Any]]:
    """Return the messages of the next attempt: the client's, the failed reply, the correction.

    ``body``: the client's request. ``role``, ``placement``: as in :func:`hints.place`.
    ``with_schema``: include the failed tools' schemas in full. If the failed reply can be replayed,
    it comes as an assistant message, with a tool result for each call that says what was wrong; if
    not, the correction quotes it, shortened.
    """
    messages: list[dict[str, Any]] = list(body["messages"])
    index = verdict.failures[0].choice if verdict.failures else 0
    choice = reply.choices.get(index)
    quoted = ""
    if choice is not None and _can_be_replayed(choice):
        messages += _replayed(choice, [f for f in verdict.failures if f.choice == index])
    elif choice is not None:
        quoted = _quoted(choice)
    if verdict.doubt:
        text = _doubt(verdict.failures, quoted)
    else:
        text = _sentence(body, verdict.failures, quoted, with_schema=with_schema)
    return hints.place(messages, text, role=role, placement=placement)


def other_sampling(body: Mapping[str, Any], number: int, *, local: bool) -> dict[str, Any]:
    """Return the sampling fields that retry ``number`` (from 1) changes; empty: none.

    Without a change the same prompt would bring the same mistake. A request with a seed gets
    another fixed seed; any other gets a little more temperature. mlx-lm's default temperature is 0;
    a cloud's default is not known and so not changed.
    """
    seed = body.get("seed")
    if seed is not None:
        # For some servers a negative seed means a random one.
        fixed = isinstance(seed, int) and not isinstance(seed, bool) and seed >= 0
        return {"seed": seed ^ number} if fixed else {}
    temperature = body.get("temperature")
    if temperature is None:
        if not local:
            return {}
        temperature = 0.0
    if not isinstance(temperature, (int, float)):  # a tier's own params are not checked
        return {}
    return {"temperature": min(round(temperature + TEMPERATURE_STEP * number, 3), MAX_TEMPERATURE)}


def _can_be_replayed(choice: ChoiceReply) -> bool:
    return bool(choice.tool_calls) and all(
        _REPLAYABLE_NAME.fullmatch(call.name) and is_object(call.arguments)
        for call in choice.tool_calls
    )


def _replayed(choice: ChoiceReply, failures: Iterable[CallFailure]) -> list[dict[str, Any]]:
    errors: dict[int, list[str]] = {}
    for failure in failures:
        errors.setdefault(failure.position, []).append(failure.error)
    ids = _distinct_ids(choice.tool_calls)
    calls = [
        {
            "id": identity,
            "type": "function",
            "function": {"name": call.name, "arguments": call.arguments},
        }
        for identity, call in zip(ids, choice.tool_calls, strict=True)
    ]
    replayed: list[dict[str, Any]] = [
        {"role": "assistant", "content": choice.text or None, "tool_calls": calls}
    ]
    for position, identity in enumerate(ids):
        wrong = "; ".join(errors.get(position, ()))
        content = f"Error: {wrong}." if wrong else f"Error: {_NOT_RUN}."
        replayed.append({"role": "tool", "tool_call_id": identity, "content": content})
    return replayed


def _distinct_ids(calls: list[ToolCall]) -> list[str]:
    ids: list[str] = []
    for position, call in enumerate(calls):
        ids.append(call.id if call.id and call.id not in ids else f"call_retry_{position}")
    return ids


def _quoted(choice: ChoiceReply) -> str:
    parts = [choice.text] if choice.text.strip() else []
    parts += [f"{call.name}({call.arguments})" for call in choice.tool_calls]
    return abridged("\n".join(parts), MAX_QUOTED)


def _doubt(failures: tuple[CallFailure, ...], quoted: str) -> str:
    """Return the question whether the model meant its reply."""
    errors = list(dict.fromkeys(failure.error for failure in failures))
    lines = [
        "Your previous response was not delivered yet, for it may not be what you meant:",
        *(f"{error}." for error in errors),
    ]
    if quoted:
        lines.append(f"The response was: {quoted}")
    if any(failure.position >= 0 for failure in failures):
        lines.append(
            "If you meant the call exactly as it is, make it again. If not, make the call that "
            "you meant, or answer with text."
        )
    else:
        lines.append("If you meant a tool call, make it. If that was your answer, give it again.")
    return "\n".join(lines)


def _sentence(
    body: Mapping[str, Any], failures: tuple[CallFailure, ...], quoted: str, *, with_schema: bool
) -> str:
    errors = list(dict.fromkeys(failure.error for failure in failures))
    about_format = bool(failures) and all(f.tool == "response_format" for f in failures)
    subject = "response" if about_format else "tool call"
    lines = [
        f"Your previous response contained an invalid {subject}. "
        f"The {'error was' if len(errors) == 1 else 'errors were'}:",
        *(f"{error}." for error in errors),
    ]
    if quoted:
        lines.append(f"The response was: {quoted}")
    if about_format:
        lines.append("You must respond with valid JSON matching the schema exactly.")
        return "\n".join([*lines, *(_format_schema(body) if with_schema else ())])
    if body.get("tool_choice") == "none":  # to name the tools would ask for another call
        return "\n".join(lines)
    lines.append("You must respond with valid JSON matching the tool schema exactly.")
    names = _tool_names(body)
    if names:
        ellipsis = ", …" if len(names) > MAX_LISTED_TOOLS else ""
        lines.append(f"Available tools: {', '.join(names[:MAX_LISTED_TOOLS])}{ellipsis}.")
    if with_schema:
        schemas = _schemas(body, {failure.tool for failure in failures})
        lines += schemas or _all_schemas(body, names)
    return "\n".join(lines)


def _tool_names(body: Mapping[str, Any]) -> list[str]:
    functions = (tool.get("function") or {} for tool in body.get("tools") or ())
    return [f["name"] for f in functions if isinstance(f, dict) and isinstance(f.get("name"), str)]


def _schemas(body: Mapping[str, Any], tools: set[str]) -> list[str]:
    lines = []
    for tool in body.get("tools") or ():
        function = tool.get("function")
        if not isinstance(function, dict) or function.get("name") not in tools:
            continue
        schema = _as_json(function.get("parameters"))
        if schema:
            lines.append(f"The arguments of {function['name']} must match: {schema}")
    return lines


def _all_schemas(body: Mapping[str, Any], names: list[str]) -> list[str]:
    """Return all schemas if short, for when the tool is unknown (mlx-lm loses the text)."""
    lines = _schemas(body, set(names))
    return lines if sum(map(len, lines)) <= MAX_SCHEMA else []


def _format_schema(body: Mapping[str, Any]) -> list[str]:
    json_schema = (body.get("response_format") or {}).get("json_schema")
    schema = _as_json(json_schema.get("schema")) if isinstance(json_schema, dict) else ""
    return [f"The schema is: {schema}"] if schema else []


def _as_json(schema: Any) -> str:
    """Return a schema as JSON for the model; "" if there is none or it is too long."""
    text = "" if schema is None else orjson.dumps(schema).decode()
    return text if len(text) <= MAX_SCHEMA else ""
