"""Replies under `response_format`: checked like a call's arguments, and mended likewise."""

from __future__ import annotations

import json
from typing import Any

import pytest

from mlx_stack_proxy.tool_validation.check import FORMAT, Checked, Options, check_response_format
from tests.tool_validation.calls import parameters

OBJECT = {"type": "json_object"}


def shaped(schema: Any) -> dict[str, Any]:
    return {"type": "json_schema", "json_schema": {"name": "answer", "schema": schema}}


ANSWER = shaped(parameters("answer", answer="integer", note="string"))
NUMBERS = shaped({"type": "array", "items": {"type": "integer"}})


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ('{"a": 1}', OBJECT),
        (' {"answer": 5, "note": ""}\n', ANSWER),
        ("[1, 2]", NUMBERS),
        ('"x"', shaped({"type": "string"})),
        ("anything", {"type": "text"}),
        ("anything", None),
        ("5", shaped("odd")),
    ],
)
def test_good_replies_are_not_touched(text: str, wanted: Any) -> None:
    assert check_response_format(text, wanted) == Checked(FORMAT, text)


@pytest.mark.parametrize(
    ("text", "wanted", "due", "rules"),
    [
        ('```json\n{"a":  1}\n```', OBJECT, '{"a":  1}', ("code_fence",)),
        ('Here it is: {"a": 1}', OBJECT, '{"a": 1}', ("leading_text",)),
        ('{"answer": "5"}', ANSWER, '{"answer": 5}', ("number_from_string",)),
        ("Here: [1, 2,]", NUMBERS, "[1, 2]", ("leading_text", "trailing_comma")),
    ],
)
def test_replies_with_one_reading(text: str, wanted: Any, due: str, rules: Any) -> None:
    assert check_response_format(text, wanted) == Checked(FORMAT, due, rules)
    assert check_response_format(text, wanted, Options(repair=False)).failures


@pytest.mark.parametrize(
    ("text", "wanted", "error"),
    [
        ("", OBJECT, "the reply's contents are empty"),
        ('{"answer": 5', ANSWER, "the reply's contents break off in or after a number"),
        ("[1]", OBJECT, "the JSON in the reply came as an array of 1 elements: "),
        ("{}", ANSWER, 'missing required field "answer" in the reply'),
        ('{"answer": "x"}', ANSWER,
         'field "answer" in the reply came as the string "x": it is not of type "integer"'),
        ("[" * 100_000, NUMBERS, "the reply's contents are nested more than 64 levels deep"),
        ("x" * 2_000_000, NUMBERS, "the reply's contents are larger than"),
    ],
)  # fmt: skip
def test_replies_that_fail(text: str, wanted: Any, error: str) -> None:
    checked = check_response_format(text, wanted)
    assert (checked.arguments, checked.repairs) == (text, ())
    assert checked.failures[0].tool == "response_format"
    assert checked.failures[0].error.startswith(error)


THOUGHTS = {
    "closed": '<think>Maybe {"answer": 1}? No: "5", surely.</think>\n',
    "long": "<think>" + "I count them once more. " * 200 + "</think>",
    "another spelling": '◁think▷{"answer": 1}◁/think▷ ',
    "opened by the prompt": 'It may be {"answer": 1}.\n</think>\n\n',
}


@pytest.mark.parametrize("name", THOUGHTS)
def test_the_answer_stands_behind_what_the_model_thought(name: str) -> None:
    thought = THOUGHTS[name]
    for said, due, rules in (
        ('{"answer": 5}', '{"answer": 5}', ()),
        ('```json\n{"answer": "5"}\n```', '{"answer": 5}', ("code_fence", "number_from_string")),
        ('{"answer": 5, "note": "</think>"}', '{"answer": 5, "note": "</think>"}', ()),
    ):
        if "</think>" in said and name == "opened by the prompt":
            continue  # nobody can tell
        checked = check_response_format(thought + said, ANSWER)
        assert checked == Checked(FORMAT, due, ("leading_text", *rules))
    for said in ("", "I can't do that.", '{"answer": "x"}'):
        checked = check_response_format(thought + said, ANSWER)
        assert checked.failures
        assert checked.arguments == thought + said


def test_a_thought_is_no_answer() -> None:
    assert check_response_format('<think>So {"answer": 1}', ANSWER).failures


@pytest.mark.parametrize(
    "text", ['{"a": "x </think> y"}', 'Here: {"a": "x </think> y"}', "{'a': 'x </think> y'}"]
)
def test_a_marker_in_a_string_ends_no_thought(text: str) -> None:
    assert json.loads(check_response_format(text, OBJECT).arguments) == {"a": "x </think> y"}


def test_the_check_can_be_switched_off() -> None:
    off = Options(validate_json=False)
    assert check_response_format("no", OBJECT, off) == Checked(FORMAT, "no")
    lax = Options(validate_schema=False)
    assert check_response_format("{}", ANSWER, lax) == Checked(FORMAT, "{}")
