"""Each rule for the shape and the values of a call, with what it must leave alone."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.tool_validation.calls import check, kinds, mended, one, parameters, tool, tool_set


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
        ("number", "1e-06", 1e-06, "number_from_string"),
        ("integer", "5.0", 5.0, "number_from_string"),
        (OPTIONAL, "5", 5, "number_from_string"),
        ({"type": ["integer", "null"]}, " 5 ", 5, "number_from_string"),
        ({"type": "integer", "enum": [5, 10]}, "10", 10, "number_from_string"),
        (OPTIONAL, "null", None, "null_from_string"),
        ({"type": ["array", "null"]}, "None", None, "null_from_string"),
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
        ("string", 5.0),
        ("string", True),
        ("string", None),
        (STRINGS, "chicken, tomatoes and lettuce"),
        (STRINGS, "米饭、豆子"),
        (STRINGS, "ls -la"),
        (STRINGS, ""),
        (STRINGS, "[a, b]"),
        (STRINGS, None),
        (NUMBERS, "1 and 2"),
        (parameters(k="integer"), "k is 1"),
        (parameters(k="integer"), '{"k": 1'),
        (parameters("k", k="integer"), "{}"),
        (UNITS, "kelvin"),
        (STATES, "C#"),
        ({"enum": ["A", "a"]}, "Á"),
        ({"enum": ["on", "ON"]}, "On"),
        ({"type": ["integer", "array"]}, "5"),
    ],
)
def test_a_value_that_would_be_a_guess(schema: Any, came: Any) -> None:
    assert kinds(json.dumps({"value": came}), one(parameters("value", value=schema))) != []


DEEP = parameters("a", a={"type": "array", "items": parameters("n", n="integer", u=UNITS)})
REFERRED = {"$defs": {"size": parameters(w="integer")}, **parameters(s={"$ref": "#/$defs/size"})}
NULLS = parameters("a", a="string", b="string", c=OPTIONAL, d={})
PATH = parameters("file_path", file_path="string", maxLines="integer")
QUERY = closed(parameters("query", query="string", limit="integer"))
# Their schemas would let a wrapping pass.
FREE = parameters(limit="integer", name="string")
GENRES = parameters(genre="string", director="string")
OWN_ID = parameters(id="string", created="string")
DRAMA = {"genre": "Drama"}
INSIDE = {"name": "f", "arguments": DRAMA}
SPELLED = ("parameter_spelling",)
WRAPPED = ("wrapped_arguments",)


@pytest.mark.parametrize(
    ("schema", "came", "due", "rules"),
    [
        (DEEP, {"a": [{"n": "1", "u": "CELSIUS"}, {"N": 2}]},
         {"a": [{"n": 1, "u": "celsius"}, {"n": 2}]},
         ("number_from_string", "enum_spelling", "parameter_spelling")),
        (REFERRED, {"s": {"w": "3"}}, {"s": {"w": 3}}, ("number_from_string",)),
        (REFERRED, {"s": '{"w": 3}'}, {"s": {"w": 3}}, ("object_from_string",)),
        (NULLS, {"a": "x", "b": None}, {"a": "x"}, ("optional_null",)),
        (PATH, {"filePath": "a", "maxLines": 1}, {"file_path": "a", "maxLines": 1}, SPELLED),
        (PATH, {"file-path": "a"}, {"file_path": "a"}, SPELLED),
        (closed(PATH), {"file_path": "a", "max_lines": 1}, {"file_path": "a", "maxLines": 1},
         SPELLED),
        (QUERY, {"query": "x", "_comment": "asked for", "confidence": 0.9}, {"query": "x"},
         ("unknown_parameter",)),
        (FREE, {"arguments": {"limit": 5}}, {"limit": 5}, WRAPPED),
        (FREE, {"name": "f", "arguments": {"name": "x"}}, {"name": "x"}, WRAPPED),
        (FREE, {"type": "function", "function": {"name": "f", "arguments": {}}}, {}, WRAPPED),
        (GENRES, {"id": "call_1", "type": "function", "function": INSIDE}, DRAMA, WRAPPED),
        (GENRES, {"function": {**INSIDE, "arguments": '{"genre": "Drama"}'}}, DRAMA, WRAPPED),
        (GENRES, {"tool_calls": [{"type": "function", "function": INSIDE}]}, DRAMA, WRAPPED),
        (GENRES, {"function_call": INSIDE}, DRAMA, WRAPPED),
        (GENRES, {"arguments": {"arguments": DRAMA}}, DRAMA, WRAPPED),
        (OWN_ID, {"id": "call_1", "name": "f", "arguments": {"id": "s", "created": "today"}},
         {"id": "s", "created": "today"}, WRAPPED),
    ],
)  # fmt: skip
def test_arguments_that_are_surely_meant_otherwise(
    schema: Any, came: Any, due: Any, rules: tuple[str, ...]
) -> None:
    assert mended(json.dumps(came), one(schema)) == (due, rules)


@pytest.mark.parametrize(
    ("schema", "came"),
    [
        (parameters(value="string"), {"value": "5"}),
        (parameters(value={"type": ["string", "integer"]}), {"value": "5"}),
        (parameters(value={}), {"value": "5"}),
        (NULLS, {"a": "x", "c": None, "d": None}),
        (parameters("query", query="string"), {"query": "x", "_comment": "asked for"}),
        (parameters("input", input="object", query="string"), {"input": {"query": "x"}}),
        (FREE, {"arguments": {"other": 5}}),
        (parameters("id", id="string", message="string"),
         {"id": "outer", "name": "f", "arguments": {"message": "x"}}),
        (OWN_ID, {"id": "a", "name": "f"}),
        (OWN_ID, {"id": "a", "arguments": {"x": 1}}),
        (OWN_ID, {"f": "x"}),
    ],
)  # fmt: skip
def test_arguments_that_stay_as_they_came(schema: Any, came: Any) -> None:
    checked = check(json.dumps(came), one(schema))
    assert (checked.arguments, checked.repairs, checked.failures) == (json.dumps(came), (), ())


@pytest.mark.parametrize(
    ("schema", "arguments", "kind"),
    [
        (NULLS, '{"a": null}', ["wrong_type"]),
        (PATH, '{"path": "a"}', ["missing_required"]),
        (PATH, '{"filePath": "a", "FilePath": "b"}', ["missing_required"]),
        (PATH, '{"file": "a"}', ["missing_required"]),
        # Two parameters of one spelling are never confused.
        (parameters("a_b", "aB", a_b="string", aB="string"), '{"AB": "x"}',
         ["missing_required"] * 2),
        (QUERY, '{"_comment": "x"}', ["unknown_parameter", "missing_required"]),
        (QUERY, '{"query": "x", "limits": 5}', ["unknown_parameter"]),  # the optional one?
        (QUERY, '{"query": "x", "lim": 5}', ["unknown_parameter"]),
        (QUERY, '{"query": "x", "options": {"limit": 5}}', ["unknown_parameter"]),
        (QUERY, '{"query": "x", "Query": "y"}', ["unknown_parameter"]),  # which of them?
    ],
)  # fmt: skip
def test_arguments_that_would_be_a_guess(schema: Any, arguments: str, kind: list[str]) -> None:
    assert kinds(arguments, one(schema)) == kind


@pytest.mark.parametrize(
    "came",
    [
        *({key: {"query": "x"}} for key in ("arguments", "parameters", "input", "kwargs")),
        {"name": "search", "arguments": '{"query": "x"}'},
        {"name": "functions.search", "parameters": {"query": "x"}},
        {"search": {"query": "x"}},
        {"id": "c1", "type": "tool_use", "name": "search", "input": {"query": "x"}},
    ],
)
def test_wrapped_arguments(came: Any) -> None:
    assert mended(json.dumps(came)) == ({"query": "x"}, WRAPPED)


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


@pytest.mark.parametrize(
    ("name", "rules"),
    [
        ("Write_File", ("name_spelling",)),
        ("writeFile", ("name_spelling",)),
        ("`write_file`", ("name_spelling",)),
        ("functions.write_file", ("name_prefix",)),
        ("functions.write_file:3", ("name_call_id", "name_prefix")),
        ("functions_write_file_2", ("name_call_id", "name_prefix")),
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


def test_arguments_stay_an_object_whatever_their_schema_wants() -> None:
    assert kinds("{}", one({"allOf": [{"type": "array"}]})) == ["wrong_type"]


SPACED = tool_set([tool("agents__wait_for"), tool("mcp__a__read"), tool("mcp__b__read"), tool("b")])


@pytest.mark.parametrize("name", ["wait_for", "waitFor", "functions.wait_for"])
def test_a_bare_name_that_one_namespace_has(name: str) -> None:
    checked = check("{}", SPACED, name)
    assert (checked.name, checked.repairs[-1]) == ("agents__wait_for", "name_namespace")


@pytest.mark.parametrize("name", ["read", "for", "wait", "agents", "b__wait_for", "wait_for_all"])
def test_a_bare_name_that_none_or_several_have(name: str) -> None:
    assert kinds("{}", SPACED, name) == ["unknown_tool"]


PATCH = "*** Begin Patch\n*** End Patch"
FRAMED = one(closed(parameters("input", input={"type": "string", "x-frame": PATCH.split("\n")})))


@pytest.mark.parametrize(
    "came", [{"patch": PATCH}, {"input": json.dumps({"patch": PATCH})}, {"command": f"{PATCH}\n"}]
)
def test_a_framed_text_under_another_name(came: Any) -> None:
    value, rules = mended(json.dumps(came), FRAMED)
    assert (value["input"].strip(), rules) == (PATCH, ("wrapped_arguments",))


@pytest.mark.parametrize("came", [{"patch": "x"}, {"patch": PATCH, "to": "a"}, {"patch": [PATCH]}])
def test_another_text_under_another_name(came: Any) -> None:
    assert kinds(json.dumps(came), FRAMED) != []
