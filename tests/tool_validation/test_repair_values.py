"""Each rule for the shape and the values of a call, with what it must leave alone."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.tool_validation.calls import TOOLS, check, kinds, mended, one, parameters, tool, tool_set


def closed(schema: dict[str, Any]) -> dict[str, Any]:
    return {**schema, "additionalProperties": False}


STRINGS = {"type": "array", "items": {"type": "string"}}
NUMBERS = {"type": "array", "items": {"type": "number"}}
OBJECTS = {"type": "array", "items": parameters("q", q="string")}
OPTIONAL = {"anyOf": [{"type": "integer"}, {"type": "null"}]}
UNITS = {"type": "string", "enum": ["celsius", "fahrenheit"]}
STATES = {"type": "string", "enum": ["in_progress", "done", "Open", "C++", "1.0"]}


@pytest.mark.parametrize(
    ("schema", "came", "due", "rule"),
    [
        ("integer", "5", 5, "number_from_string"),
        ("integer", "1189273645520117845", 1189273645520117845, "number_from_string"),
        ("integer", "-0", 0, "number_from_string"),
        ("number", "1e-06", 1e-06, "number_from_string"),
        ("number", "-880.0", -880.0, "number_from_string"),
        ("integer", "5.0", 5.0, "number_from_string"),
        (OPTIONAL, "5", 5, "number_from_string"),
        ({"type": ["integer", "null"]}, " 5 ", 5, "number_from_string"),
        ({"type": "integer", "enum": [5, 10]}, "10", 10, "number_from_string"),
        ("boolean", "true", True, "boolean_from_string"),
        ("boolean", "False", False, "boolean_from_string"),
        ("string", 5, "5", "string_from_integer"),
        ({"enum": ["12", "24"]}, 12, "12", "string_from_integer"),
        (STRINGS, '["a", "b"]', ["a", "b"], "array_from_string"),
        (STRINGS, "['a', 'b']", ["a", "b"], "array_from_string"),
        (parameters(k="integer"), '{"k": 1}', {"k": 1}, "object_from_string"),
        (parameters(k="boolean"), "{'k': True}", {"k": True}, "object_from_string"),
        (STRINGS, "src/main.py", ["src/main.py"], "array_from_value"),
        (NUMBERS, 1, [1], "array_from_value"),
        (OBJECTS, {"q": "x"}, [{"q": "x"}], "array_from_value"),
        (UNITS, "CELSIUS", "celsius", "enum_spelling"),
        (UNITS, " Celsius ", "celsius", "enum_spelling"),
        (STATES, "In Progress", "in_progress", "enum_spelling"),
        (STATES, "inProgress", "in_progress", "enum_spelling"),
    ],
)
def test_a_value_of_the_wrong_type_that_is_surely_meant(
    schema: Any, came: Any, due: Any, rule: str
) -> None:
    tools = one(parameters("value", value=schema))
    assert mended(json.dumps({"value": came}), tools) == ({"value": due}, (rule,))


@pytest.mark.parametrize(
    ("schema", "came"),
    [
        ("integer", "five"),
        ("integer", "5 km"),
        ("integer", "1,000"),
        ("integer", "007"),
        ("integer", "5.5"),
        ("integer", ""),
        ("integer", "1e999"),
        ("integer", True),
        ("boolean", "yes"),
        ("boolean", "1"),
        ("boolean", 1),
        ("string", 5.0),
        ("string", True),
        ("string", None),
        ("string", ["x"]),
        (STRINGS, "chicken, tomatoes and lettuce"),
        (STRINGS, "米饭、豆子"),
        (STRINGS, "a.py b.py"),
        (STRINGS, "a\nb"),
        (STRINGS, ""),
        (STRINGS, "[a, b]"),
        (STRINGS, None),
        (NUMBERS, "1 and 2"),
        (parameters(k="integer"), "k is 1"),
        (parameters(k="integer"), '{"k": 1'),
        (parameters("k", k="integer"), "{}"),
        (UNITS, "kelvin"),
        (UNITS, "c"),
        (STATES, "C#"),
        (STATES, "C"),
        (STATES, "10"),
        ({"enum": ["A", "a"]}, "Á"),
        ({"enum": ["on", "ON"]}, "On"),
        ({"type": ["integer", "array"]}, "5"),
    ],
)
def test_a_value_that_would_be_a_guess(schema: Any, came: Any) -> None:
    assert kinds(json.dumps({"value": came}), one(parameters("value", value=schema))) != []


def test_an_allowed_string_stays_a_string() -> None:
    for kind in ("string", ["string", "integer"], {}):
        schema = kind if isinstance(kind, dict) else {"type": kind}
        text = '{"value": "5"}'
        checked = check(text, one(parameters("value", value=schema)))
        assert (checked.arguments, checked.repairs, checked.failures) == (text, (), ())


def test_a_command_line_is_not_one_element() -> None:
    tools = one(parameters("command", command=STRINGS))
    assert kinds('{"command": "ls -la"}', tools) == ["wrong_type"]
    assert mended('{"command": "ls"}', tools)[0] == {"command": ["ls"]}


def test_values_are_mended_at_every_depth() -> None:
    schema = parameters("a", a={"type": "array", "items": parameters("n", n="integer", u=UNITS)})
    value, rules = mended('{"a": [{"n": "1", "u": "CELSIUS"}, {"N": 2}]}', one(schema))
    assert value == {"a": [{"n": 1, "u": "celsius"}, {"n": 2}]}
    assert rules == ("number_from_string", "enum_spelling", "parameter_spelling")


def test_values_are_mended_behind_references() -> None:
    schema = {
        "$defs": {"size": {"type": "object", "properties": {"w": {"type": "integer"}}}},
        **parameters("size", size={"$ref": "#/$defs/size"}),
    }
    assert mended('{"size": {"w": "3"}}', one(schema))[0] == {"size": {"w": 3}}
    assert mended('{"size": "{\\"w\\": 3}"}', one(schema))[0] == {"size": {"w": 3}}


def test_null_for_an_optional_parameter_is_left_out() -> None:
    schema = parameters("a", a="string", b="string", c=OPTIONAL, d={})
    assert mended('{"a": "x", "b": null}', one(schema)) == ({"a": "x"}, ("optional_null",))
    text = '{"a": "x", "c": null, "d": null}'
    assert check(text, one(schema)).arguments == text
    assert kinds('{"a": null}', one(schema)) == ["wrong_type"]


def test_a_parameter_in_another_spelling() -> None:
    schema = parameters("file_path", file_path="string", maxLines="integer")
    for name in ("filePath", "file-path", "FILE_PATH", "FilePath"):
        value, rules = mended(json.dumps({name: "a", "maxLines": 1}), one(schema))
        assert (value, rules) == ({"file_path": "a", "maxLines": 1}, ("parameter_spelling",))
    assert mended('{"file_path": "a", "max_lines": 1}', one(closed(schema)))[0] == {
        "file_path": "a",
        "maxLines": 1,
    }


@pytest.mark.parametrize(
    "arguments",
    ['{"path": "a"}', '{"filePath": "a", "FilePath": "b"}', '{"file": "a"}', '{"filepaths": "a"}'],
)
def test_a_parameter_that_may_be_another(arguments: str) -> None:
    schema = parameters("file_path", file_path="string")
    assert kinds(arguments, one(schema)) == ["missing_required"]


def test_two_parameters_of_one_spelling_are_never_confused() -> None:
    schema = parameters("a_b", "aB", a_b="string", aB="string")
    assert kinds('{"AB": "x"}', one(schema)) == ["missing_required"] * 2


def test_unknown_parameters_that_are_forbidden_are_dropped() -> None:
    tools = one(closed(parameters("query", query="string", limit="integer")))
    value, rules = mended('{"query": "x", "_comment": "asked for", "confidence": 0.9}', tools)
    assert (value, rules) == ({"query": "x"}, ("unknown_parameter",))


@pytest.mark.parametrize(
    "arguments",
    [
        '{"_comment": "x"}',  # something required is missing
        '{"query": "x", "limits": 5}',  # may be the optional one, misspelled
        '{"query": "x", "lim": 5}',
        '{"query": "x", "options": {"limit": 5}}',
        '{"query": "x", "Query": "y"}',  # which of them?
    ],
)
def test_unknown_parameters_that_may_be_meant(arguments: str) -> None:
    tools = one(closed(parameters("query", query="string", limit="integer")))
    assert kinds(arguments, tools) != []


def test_unknown_parameters_that_are_allowed_stay() -> None:
    text = '{"query": "x", "_comment": "asked for"}'
    assert check(text).arguments == text


WRAPPED = [
    {"arguments": {"query": "x"}},
    {"parameters": {"query": "x"}},
    {"input": {"query": "x"}},
    {"kwargs": {"query": "x"}},
    {"name": "search", "arguments": {"query": "x"}},
    {"name": "search", "arguments": '{"query": "x"}'},
    {"name": "functions.search", "parameters": {"query": "x"}},
    {"type": "function", "function": {"name": "search", "arguments": {"query": "x"}}},
    {"search": {"query": "x"}},
    {"id": "c1", "type": "tool_use", "name": "search", "input": {"query": "x"}},
]


@pytest.mark.parametrize("came", WRAPPED)
def test_wrapped_arguments(came: Any) -> None:
    assert mended(json.dumps(came)) == ({"query": "x"}, ("wrapped_arguments",))


@pytest.mark.parametrize(
    "came",
    [
        {"name": "write_file", "arguments": {"query": "x"}},  # another tool's
        {"arguments": {"query": "x"}, "parameters": {"query": "y"}},
        {"arguments": {"query": "x"}, "limit": 5},
        {"arguments": [{"query": "x"}]},
        {"type": "object", "parameters": {"query": "x"}},
        {"arguments": {"limit": 5}},
    ],
)
def test_wrappings_that_are_not_sure(came: Any) -> None:
    assert kinds(json.dumps(came)) != []


def test_a_parameter_that_is_called_like_a_wrapping() -> None:
    text = '{"input": {"query": "x"}}'
    tools = one(parameters("input", input="object", query="string"))
    assert check(text, tools).arguments == text


def test_wrapped_arguments_that_the_schema_would_let_pass() -> None:
    tools = one(parameters(limit="integer", name="string"))
    assert mended('{"arguments": {"limit": 5}}', tools)[0] == {"limit": 5}
    assert mended('{"name": "f", "arguments": {"name": "x"}}', tools)[0] == {"name": "x"}
    text = '{"arguments": {"other": 5}}'
    assert check(text, tools).arguments == text


INSIDE = {"name": "f", "arguments": {"genre": "Drama"}}


@pytest.mark.parametrize(
    "came",
    [
        {"type": "function", "function": INSIDE},
        {"id": "call_1", "type": "function", "function": INSIDE},
        {"function": {**INSIDE, "arguments": '{"genre": "Drama"}'}},
        {"tool_calls": [{"type": "function", "function": INSIDE}]},
        {"function_call": INSIDE},
        {"tool_call": INSIDE},
        {"arguments": {"arguments": {"genre": "Drama"}}},
        {"f": {"genre": "Drama"}},
    ],
)
def test_a_call_inside_the_call_of_a_tool_that_needs_nothing(came: Any) -> None:
    tools = one(parameters(genre="string", director="string"))
    assert mended(json.dumps(came), tools) == ({"genre": "Drama"}, ("wrapped_arguments",))


def test_a_whole_call_for_a_tool_with_an_id_of_its_own() -> None:
    tools = one(parameters(id="string", created="string"))
    came = {"id": "call_1", "name": "f", "arguments": {"id": "sl8", "created": "today"}}
    assert mended(json.dumps(came), tools)[0] == {"id": "sl8", "created": "today"}
    logged = one(parameters("id", id="string", message="string"))
    text = '{"id": "outer", "name": "f", "arguments": {"message": "x"}}'
    assert check(text, logged).arguments == text
    for own in ({"id": "a", "name": "f"}, {"id": "a", "arguments": {"x": 1}}, {"f": "x"}):
        text = json.dumps(own)
        assert check(text, tools).arguments == text


def test_a_whole_call_without_arguments() -> None:
    tools = one(parameters(limit="integer"))
    came = {"type": "function", "function": {"name": "f", "arguments": {}}}
    assert mended(json.dumps(came), tools) == ({}, ("wrapped_arguments",))


@pytest.mark.parametrize(
    ("name", "rules"),
    [
        ("Write_File", ("name_spelling",)),
        ("write-file", ("name_spelling",)),
        ("writeFile", ("name_spelling",)),
        ("`write_file`", ("name_spelling",)),
        ("functions.write_file", ("name_prefix",)),
        ("functions.write_file:3", ("name_call_id", "name_prefix")),
        ("write_file<|channel|>commentary", ("name_marker",)),
        ("functions.writeFile<|constrain|>json", ("name_marker", "name_prefix", "name_spelling")),
    ],
)
def test_names_in_another_spelling(name: str, rules: tuple[str, ...]) -> None:
    text = '{"path": "a",  "content": ""}'
    checked = check(text, name=name)
    assert (checked.name, checked.arguments, checked.failures) == ("write_file", text, ())
    assert checked.repairs == rules


def test_a_name_that_two_tools_spell() -> None:
    tools = tool_set([tool("read_file"), tool("readFile")])
    assert kinds("{}", tools, "READ_FILE") == ["unknown_tool"]
    assert kinds("{}", tools, "readFile") == []


def test_a_tool_whose_name_has_a_prefix_or_a_number() -> None:
    tools = tool_set([tool("functions.get"), tool("get"), tool("step:1")])
    for name in tools.names:
        assert check("{}", tools, name).repairs == ()


def test_glm_markup_inside_the_name() -> None:
    tools = tool_set([tool("read", parameters("filePath", filePath="string", limit="integer"))])
    name = "read<arg_key>filePath</arg_key><arg_value>/srv/main.py</arg_value>"
    more = name + "\n<arg_key>limit</arg_key>\n<arg_value>7</arg_value>"
    assert check("", tools, name).arguments == '{"filePath": "/srv/main.py"}'
    checked = check("{}", tools, more)
    assert checked.arguments == '{"filePath": "/srv/main.py", "limit": 7}'
    assert checked.name == "read"
    assert checked.repairs == ("name_markup",)


@pytest.mark.parametrize(
    ("name", "arguments", "kind"),
    [
        ("read<arg_key>filePath</arg_key><arg_value>/srv", "", "invalid_json"),
        ("read<arg_key>a</arg_key><arg_value>1</arg_value><arg_key>a</arg_key>"
         "<arg_value>2</arg_value>", "", "duplicate_key"),
        ("read<arg_key>filePath</arg_key><arg_value>a</arg_value>", '{"a": "b"}', "unknown_tool"),
        ("gone<arg_key>filePath</arg_key><arg_value>a</arg_value>", "{}", "unknown_tool"),
    ],
)  # fmt: skip
def test_glm_markup_that_is_not_whole(name: str, arguments: str, kind: str) -> None:
    tools = tool_set([tool("read", parameters(filePath="string", a="string"))])
    assert kinds(arguments, tools, name) == [kind]


def test_nothing_of_a_call_that_still_fails_is_changed() -> None:
    text = '{"QUERY": "x", "limit": "five",}'
    checked = check(text, name="Search")
    assert (checked.name, checked.arguments, checked.repairs) == ("Search", text, ())
    assert [failure.kind for failure in checked.failures] == ["wrong_type"]


def test_repair_and_retry_leave_the_other_tools_alone() -> None:
    assert mended('{"command": "ls",}', TOOLS, "run_terminal_command")[0] == {"command": "ls"}


def test_arguments_stay_an_object_whatever_their_schema_wants() -> None:
    assert kinds("{}", one({"allOf": [{"type": "array"}]})) == ["wrong_type"]
