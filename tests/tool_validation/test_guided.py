"""The schema of a guided reply, and how the stage reads the reply."""

from __future__ import annotations

import json
from typing import Any

import jsonschema_rs
import pytest

from mlx_stack_proxy.engine.exchange import Exchange
from mlx_stack_proxy.engine.steps import Retry
from mlx_stack_proxy.tool_validation.guided import (
    MAX_SCHEMA,
    MAX_TOOLS,
    can_be_guided,
    guided,
    read_reply,
    response_format,
)
from mlx_stack_proxy.tool_validation.tools import tool_set
from tests.engine.exchanges import client_request
from tests.tool_validation.calls import parameters, tool
from tests.tool_validation.tool_replies import (
    GOOD,
    TOOLS,
    Json,
    Outcome,
    asked,
    call,
    judged,
    message,
)

CALL = {"name": "search", "arguments": {"query": "quokka"}}
NAMED = {"type": "function", "function": {"name": "search"}}


def schema_for(tools: list[Json] = TOOLS, meant: tuple[str, ...] = (), **body: Any) -> Json:
    found = response_format({"tools": tools, **body}, tool_set(tools), meant)
    assert found["type"] == "json_schema"
    schema: Json = found["json_schema"]["schema"]
    return schema


def takes(schema: Json, value: Any) -> bool:
    return bool(jsonschema_rs.Draft202012Validator(schema).is_valid(value))


def names_in(schema: Json) -> list[str]:
    forms = schema.get("anyOf", [schema])
    return [f["properties"]["name"]["enum"][0] for f in forms if "name" in f["properties"]]


TWO = {"tool_calls": [CALL, {"name": "list_files", "arguments": {}}]}
ANSWER = {"answer": "It is noon."}
BODIES: list[tuple[Json, list[Any], list[Any]]] = [
    ({}, [CALL, TWO, ANSWER], [{"name": "other", "arguments": {}}, {}, "text"]),
    ({}, [], [{"name": "search", "arguments": {"limit": 5}}, {**CALL, "why": "x"}]),
    ({"parallel_tool_calls": False}, [CALL, ANSWER], [TWO]),
    ({"tool_choice": "required"}, [CALL, TWO], [ANSWER]),
    ({"tool_choice": NAMED}, [CALL], [ANSWER, {"name": "list_files", "arguments": {}}]),
    ({"tool_choice": "none"}, [ANSWER], [CALL, TWO]),
]


@pytest.mark.parametrize(("body", "good", "bad"), BODIES)
def test_the_schema_takes_what_the_request_allows(
    body: Json, good: list[Any], bad: list[Any]
) -> None:
    schema = schema_for(**body)
    assert all(takes(schema, value) for value in good)
    assert not any(takes(schema, value) for value in bad)


def test_what_grammars_refuse_is_left_out() -> None:
    whole = {
        "$defs": {"place": {"type": "object", "properties": {"city": {"type": "string"}}}},
        "type": "object",
        "properties": {
            "at": {"$ref": "#/$defs/place", "description": "where"},
            "code": {"type": "string", "pattern": "^[A-Z]{3}$", "format": "x", "maxLength": 9_000},
            "many": {"type": "array", "items": {"oneOf": [{"const": 1}, {"type": "string"}]}},
            "any": {},
            "maybe": {"type": ["string", "null"], "minLength": 1},
            "map": {"type": "object", "additionalProperties": {"type": "integer"}},
        },
        "required": ["at", "undeclared"],
        "anyOf": [{"required": ["code"]}, {"required": ["many"]}],
    }
    anything = ["string", "number", "boolean", "object", "array", "null"]
    assert guided(tool_set([tool("t", whole)]).compiled("t").schema) == {
        "type": "object",
        "properties": {
            "at": {
                "type": "object",
                "properties": {"city": {"type": "string"}},
                "additionalProperties": False,
            },
            "code": {"type": "string"},
            "many": {"type": "array", "items": {"anyOf": [{"enum": [1]}, {"type": "string"}]}},
            "any": {"type": anything},
            "maybe": {"type": ["string", "null"]},
            "map": {"type": "object", "additionalProperties": {"type": "integer"}},
            "undeclared": {"type": anything},
        },
        "required": ["at", "undeclared"],
        "additionalProperties": False,
    }


def test_of_many_tools_the_one_that_was_meant_stays() -> None:
    many = [tool(f"tool_{n}", parameters("x", x="string")) for n in range(300)]
    names = names_in(schema_for(many, ("tool_277",)))
    assert names[0] == "tool_277" and len(names) == MAX_TOOLS
    wide = {f"parameter_{n}": "string" for n in range(120)}
    large = [tool(f"tool_{n}", parameters(**wide)) for n in range(40)]
    schema = schema_for(large, ("tool_7x",), parallel_tool_calls=False)
    assert "tool_7" in names_in(schema)[:2]
    assert len(json.dumps(schema)) < 2 * MAX_SCHEMA


def test_a_huge_schema_only_demands_an_object() -> None:
    wide = {f"parameter_{n}": "string" for n in range(1_000)}
    schema = schema_for([tool("wide", parameters(**wide))], tool_choice="required")
    form = schema["anyOf"][0]
    assert form["properties"]["arguments"] == {"type": "object"}


@pytest.mark.parametrize(
    ("body", "can"),
    [
        ({"tools": TOOLS}, True),
        ({}, False),
        ({"tools": TOOLS, "n": 2}, False),
        ({"tools": TOOLS, "response_format": {"type": "json_object"}}, False),
        ({"tools": [*TOOLS, {"type": "custom", "custom": {"name": "patch"}}]}, False),
    ],
)
def test_which_requests_can_be_guided(body: Json, can: bool) -> None:
    assert can_be_guided(client_request(**body)) is can


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ('{"answer": "a\\n\\u00e4"}', "a\nä"),
        ('<think>x</think>\n{ "answer" : "a"}', "a"),
        ('{"answer": "cut here', "cut here"),
        ('{"answer": "cut \\ud83d\\ude', "cut "),
        ('{"answer": 5}', None),
        ('{"answer": "a", "more": 1}', None),
        ("The answer.", None),
    ],
)
def test_answers_are_taken_out(text: str, answer: str | None) -> None:
    assert read_reply(text)[1] == answer


def test_what_counts_as_obeyed() -> None:
    assert all(read_reply(json.dumps(value))[0] for value in (CALL, TWO, ANSWER))
    others: tuple[Any, ...] = ({**CALL, "id": 1}, [CALL], "x", {"answer": "a", "b": 1})
    assert not any(read_reply(json.dumps(value))[0] for value in others)


# The stage


def retried() -> Exchange:
    whole = asked()
    judged(message(call(arguments="{}")), whole)
    whole.steps.append(Retry("tool_validation_failure", 1, guided=True))
    return whole


def after_retry(reply: Json) -> Outcome:
    return judged(reply, retried())


def test_the_request_carries_the_schema_and_no_correction() -> None:
    request = after_retry(message(text="x")).attempt.request.body
    assert request["response_format"]["json_schema"]["strict"] is True
    assert request["messages"] == retried().request.body["messages"]


def test_a_guided_call_goes_out_as_a_real_call() -> None:
    outcome = after_retry(message(text=json.dumps(CALL, indent=2)))
    assert outcome.calls == [("search", {"query": "quokka"})]
    assert outcome.choice["message"]["content"] in (None, "")
    assert outcome.choice["finish_reason"] == "tool_calls"
    assert outcome.repairs == "guided"
    assert ("tool_call_rescued", ("bare_json",)) not in outcome.incidents
    several = after_retry(message(text=json.dumps(TWO)))
    assert [name for name, _ in several.calls] == ["search", "list_files"]


def test_a_guided_answer_goes_out_as_text() -> None:
    outcome = after_retry(message(text=json.dumps(ANSWER)))
    assert outcome.choice["message"]["content"] == "It is noon."
    assert not outcome.choice["message"].get("tool_calls")
    assert outcome.repairs == "guided"
    assert outcome.attempt.remarks().guided == "obeyed"
    cut = after_retry(message(text='{"answer": "It is', finish="length"))
    assert cut.choice["message"]["content"] == "It is"


def test_a_guided_call_is_judged_like_any_other() -> None:
    text = json.dumps({"name": "search", "arguments": {"query": 5, "limit": "many"}})
    assert after_retry(message(text=text)).kinds == ["wrong_type"]


@pytest.mark.parametrize(
    ("reply", "result"),
    [
        (message(text="I would search."), "disregarded"),
        (message(text=f"<tool_call>{json.dumps(CALL)}</tool_call>"), "disregarded"),
        (message(call(arguments=GOOD)), "asked"),
    ],
)
def test_other_replies_are_read_as_ever(reply: Json, result: str) -> None:
    outcome = after_retry(reply)
    assert outcome.attempt.remarks().guided == result
    assert outcome.verdict is None and outcome.repairs in (None, "rescued")
