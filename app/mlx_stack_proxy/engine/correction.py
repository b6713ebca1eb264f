"""Shows the model, in a retry after a bad tool call, what was wrong.

The messages of each retry are built anew from the client's; no client ever sees a correction.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from typing import Any

import orjson

from ..wire.call import Call, call_fields, object_in
from ..wire.reply import ChoiceReply, Reply
from ..wire.thoughts import after_thoughts
from . import own_words
from .verdicts import CallFailure, InvalidToolCall

MAX_REPEATED = 6000  # characters of a failed text that are shown again
MAX_LISTED_TOOLS = 40
MAX_PARAMETERS = 200  # characters of a tool's list of parameters
MAX_SCHEMA = 6000  # characters of a tool's schema, which is shown before the last retry
TEMPERATURE_STEP = 0.1
MAX_TEMPERATURE = 2.0

# Function names that every chat template and server accepts (OpenAI's rule).
_REPLAYABLE_NAME = re.compile(r"[A-Za-z0-9_.-]{1,64}")
_FORMAT = "response_format"  # takes the tool's name in failures of a reply's text
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

    ``body``: the client's request. ``role``, ``placement``: see :func:`own_words.place`.
    ``with_schema``: include the failed tools' full schemas. The failed reply is the assistant's own
    turn: its calls, each with a result that says what was wrong, or its text. The correction never
    quotes it, because small models copy what they read last. For an invalid native call, the
    correction is the specification's four lines.
    """
    messages: list[dict[str, Any]] = list(body["messages"])
    index = verdict.failures[0].choice if verdict.failures else 0
    choice = reply.choices.get(index)
    if choice is not None and _can_be_replayed(choice):
        messages += _replayed(choice, [f for f in verdict.failures if f.choice == index])
    elif choice is not None and role == "user" and messages[-1].get("role") != "assistant":
        messages += _as_text(choice)
    failures = verdict.failures
    written = choice is not None and not choice.tool_calls and bool(choice.text.strip())
    if verdict.doubt:
        text = _doubt(body, failures)
    elif written or failures[0].tool == _FORMAT:
        text = _refusal(body, failures, with_schema=with_schema)
    else:
        text = _four_lines(body, failures, with_schema=with_schema)
    return own_words.place(messages, text, role=role, placement=placement)


def other_sampling(
    body: Mapping[str, Any], number: int, *, local: bool, warmer: bool = False
) -> dict[str, Any]:
    """Return the sampling fields that retry ``number`` (from 1) changes; empty: none.

    An unchanged prompt would bring the same mistake. A request with a seed gets another fixed
    seed, any other a little more temperature. mlx-lm's default temperature is 0; a cloud's is
    unknown and so not changed. ``warmer``: add three times as much.
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
    if not isinstance(temperature, (int, float)):  # a tier's own params are not validated
        return {}
    more = TEMPERATURE_STEP * number * (3 if warmer else 1)
    return {"temperature": min(round(temperature + more, 3), MAX_TEMPERATURE)}


def _can_be_replayed(choice: ChoiceReply) -> bool:
    return bool(choice.tool_calls) and all(
        _REPLAYABLE_NAME.fullmatch(call.name) and object_in(call.arguments) is not None
        for call in choice.tool_calls
    )


def _replayed(choice: ChoiceReply, failures: Iterable[CallFailure]) -> list[dict[str, Any]]:
    errors: dict[int, list[str]] = {}
    for failure in failures:
        errors.setdefault(failure.position, []).append(failure.error)
    ids = _distinct_ids(choice.tool_calls)
    calls = [
        call_fields(identity, call.name, call.arguments)
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


def _distinct_ids(calls: list[Call]) -> list[str]:
    ids: list[str] = []
    for position, call in enumerate(calls):
        ids.append(call.id if call.id and call.id not in ids else f"call_retry_{position}")
    return ids


def _as_text(choice: ChoiceReply) -> list[dict[str, Any]]:
    """Return a reply's text as the assistant's turn; empty if there is none, or it is too long."""
    answer = after_thoughts(choice.text).strip()
    if not answer or len(answer) > MAX_REPEATED:
        return []
    return [{"role": "assistant", "content": answer}]


def _doubt(body: Mapping[str, Any], failures: tuple[CallFailure, ...]) -> str:
    """Return the question whether the model meant its reply, in words that invite no answer.

    An unknown tool is not named: small models then call it again. Other wordings were measured,
    too (`benchmarks/real-models.md`).
    """
    if failures[0].kind == "unknown_tool":
        tools = _signatures(body)
        return "\n".join(["The only tools are:", *tools, "Call one of these, or answer."])
    errors = [f"{error}." for error in _errors(failures)]
    if failures[0].position < 0:
        return "\n".join([*errors, "Make the call, or answer."])
    question = "Make it again if it is right. If not, make the right call, or answer."
    return "\n".join(["That call has not run yet:", *errors, question])


def _refusal(
    body: Mapping[str, Any], failures: tuple[CallFailure, ...], *, with_schema: bool
) -> str:
    """Return what is wrong with a text, or a call written as text, and what to write instead."""
    errors = "; ".join(_errors(failures))
    if failures[0].tool == _FORMAT:
        order = "Answer again, with JSON that matches the schema exactly."
        schema = _format_schema(body) if with_schema else []
        return "\n".join([f"That answer was refused: {errors}.", order, *schema])
    if body.get("tool_choice") == "none":  # naming the tools would ask for another call
        return f"That call was refused: {errors}."
    what = "call" if failures[0].tool else "answer"
    lines = [f"That {what} was refused: {errors}.{_only_tools(body)}", "Make the right call."]
    return "\n".join([*lines, *(_shown_schemas(body, failures) if with_schema else ())])


def _four_lines(
    body: Mapping[str, Any], failures: tuple[CallFailure, ...], *, with_schema: bool
) -> str:
    """Return the specification's four lines about an invalid call."""
    errors = _errors(failures)
    lines = [
        "Your previous response contained an invalid tool call. "
        f"The {'error was' if len(errors) == 1 else 'errors were'}:",
        *(f"{error}." for error in errors),
    ]
    if body.get("tool_choice") == "none":
        return "\n".join(lines)
    lines.append("You must respond with valid JSON matching the tool schema exactly.")
    names = _tool_names(body)
    if names:
        lines.append(f"Available tools: {_listed(names)}.")
    return "\n".join([*lines, *(_shown_schemas(body, failures) if with_schema else ())])


def _errors(failures: Iterable[CallFailure]) -> list[str]:
    """Return the failures' sentences without repetition; those of unknown tools are shortened."""
    return list(
        dict.fromkeys(
            f'there is no tool "{failure.tool}"'
            if failure.kind == "unknown_tool"
            else failure.error
            for failure in failures
        )
    )


def _only_tools(body: Mapping[str, Any]) -> str:
    names = _tool_names(body)
    return f" The only tools are: {_listed(names)}." if names else ""


def _listed(names: list[str]) -> str:
    return ", ".join(names[:MAX_LISTED_TOOLS]) + (", …" if len(names) > MAX_LISTED_TOOLS else "")


def _tool_names(body: Mapping[str, Any]) -> list[str]:
    return [function["name"] for function in _functions(body)]


def _functions(body: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    for tool in body.get("tools") or ():
        function = tool.get("function")
        if isinstance(function, dict) and isinstance(function.get("name"), str):
            yield function


def _signatures(body: Mapping[str, Any]) -> list[str]:
    """Return a line for each offered tool, such as ``read_file(path)``; their number is bounded."""
    lines = []
    for function in islice(_functions(body), MAX_LISTED_TOOLS):
        parameters = function.get("parameters")
        properties = parameters.get("properties") if isinstance(parameters, dict) else None
        names = ", ".join(properties) if isinstance(properties, dict) else ""
        lines.append(f"{function['name']}({names if len(names) <= MAX_PARAMETERS else '…'})")
    more = len(body["tools"]) > MAX_LISTED_TOOLS
    return [*lines, "…"] if more else lines


def _schemas(body: Mapping[str, Any], tools: set[str]) -> list[str]:
    return [
        f"The arguments of {function['name']} must match: {schema}"
        for function in _functions(body)
        if function["name"] in tools and (schema := _as_json(function.get("parameters")))
    ]


def _shown_schemas(body: Mapping[str, Any], failures: Iterable[CallFailure]) -> list[str]:
    """Return the failed tools' schemas; for an unknown tool all, if short (mlx-lm loses texts)."""
    if schemas := _schemas(body, {failure.tool for failure in failures}):
        return schemas
    lines = _schemas(body, set(_tool_names(body)))
    return lines if sum(map(len, lines)) <= MAX_SCHEMA else []


def _format_schema(body: Mapping[str, Any]) -> list[str]:
    json_schema = (body.get("response_format") or {}).get("json_schema")
    schema = _as_json(json_schema.get("schema")) if isinstance(json_schema, dict) else ""
    return [f"The schema is: {schema}"] if schema else []


def _as_json(schema: Any) -> str:
    """Return a schema as JSON for the model; "" if it is absent or too long."""
    text = "" if schema is None else orjson.dumps(schema).decode()
    return text if len(text) <= MAX_SCHEMA else ""
