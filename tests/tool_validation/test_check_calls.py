"""A call against its tools: what passes untouched, what fails, and in which words."""

from __future__ import annotations

import json

import pytest

from mlx_stack_proxy.tool_validation.check import Options, check_call
from mlx_stack_proxy.tool_validation.tools import ToolSet, tool_set
from tests.tool_validation.calls import SEARCH, TOOLS, check, kinds, one, parameters, tool

GOOD = [
    '{"query": "x"}',
    ' {\n  "query": "x"\n}\n',
    '{"limit": 5, "query": "a: \\"b\\": c"}',
    '{"query": "x", "limit": 5.0}',
    '{"query": "x", "more": [1, {"a": null}]}',
    '{"query": "\\ud83d\\ude00 \\u0000 \\ud800"}',
    '{"query": "x", "limit": 123456789012345678901234567890}',
    '{"query": "x", "query": "x"}',
    json.dumps({"query": "[{" * 5_000}),  # brackets inside strings are no nesting
]


@pytest.mark.parametrize("arguments", GOOD)
def test_a_good_call_is_not_touched(arguments: str) -> None:
    checked = check(arguments)
    assert (checked.name, checked.arguments) == ("search", arguments)
    assert (checked.repairs, checked.failures) == ((), ())


@pytest.mark.parametrize(
    ("tools", "name", "kind", "error"),
    [
        (TOOLS, "search", "missing_required",
         'missing required field "query" in function "search"'),
        (TOOLS, "write_files", "unknown_tool",
         'function "write_files" does not exist; did you mean "write_file"?'),
        (TOOLS, "teleport", "unknown_tool", 'function "teleport" does not exist'),
        (tool_set(None), "search", "unknown_tool",
         'function "search" does not exist: no tools are available'),
    ],
)  # fmt: skip
def test_a_failure_names_what_is_wrong(tools: ToolSet, name: str, kind: str, error: str) -> None:
    (failure,) = check("{}", tools, name).failures
    assert (failure.tool, failure.kind, failure.error) == (name, kind, error)


def test_the_nearest_tool_is_never_called_instead() -> None:
    only = tool_set([tool("get_weather", parameters("city", city="string"))])
    for name in ("fetch_weather", "get_wether", "weather", "get_weathers"):
        assert kinds('{"city": "Paris"}', only, name) == ["unknown_tool"]


@pytest.mark.parametrize(
    ("arguments", "schema", "error"),
    [
        ('{"n": "five"}', parameters(n="integer"),
         'field "n" in function "f" came as the string "five": it is not of type "integer"'),
        ('{"u": "kelvin"}', parameters(u={"enum": ["celsius", "fahrenheit"]}),
         'field "u" in function "f" came as the string "kelvin": '
         'it is not one of "celsius" or "fahrenheit"'),
        ('{"a": {"b": [1, true]}}',
         parameters(a=parameters(b={"type": "array", "items": {"type": "integer"}})),
         'field "a.b[1]" in function "f" came as true: it is not of type "integer"'),
        ('{"a": {}}', parameters(a=parameters("b", b="string")),
         'missing required field "a.b" in function "f"'),
        ('{"zon": 1, "a": "x"}',
         {**parameters(a="string", zone="string"), "additionalProperties": False},
         'unknown field "zon" in function "f"; allowed are "a", "zone"'),
        ('{"n": 0}', parameters(n={"type": "integer", "minimum": 1}),
         'field "n" in function "f" came as the number 0: it is less than the minimum of 1'),
        ('{"n": [1]}', parameters(n={"anyOf": [{"type": "integer"}, {"type": "null"}]}),
         'field "n" in function "f" came as an array of 1 elements: '
         'it fits none of the allowed forms (it is not of type "integer"; '
         'or it is not of type "null")'),
        ('{"s": "b"}', parameters(s={"type": "string", "pattern": "^a"}),
         'field "s" in function "f" came as the string "b": it does not match "^a"'),
    ],
)  # fmt: skip
def test_schema_errors_say_where_what_and_what_came(
    arguments: str, schema: object, error: str
) -> None:
    assert [failure.error for failure in check(arguments, one(schema)).failures] == [error]


def test_several_failures_are_all_told_up_to_the_cap() -> None:
    schema = parameters(*"abcdefg", **dict.fromkeys("abcdefg", "integer"))
    assert kinds("{}", one(schema)) == ["missing_required"] * 5


def test_long_values_are_shortened() -> None:
    (failure,) = check(json.dumps({"n": "x" * 10_000}), one(parameters(n="integer"))).failures
    assert len(failure.error) < 200


@pytest.mark.parametrize(
    ("arguments", "kind"),
    [
        ("", "missing_required"),
        ("5", "not_an_object"),
        ('"query"', "invalid_json"),
        ("[1, 2]", "not_an_object"),
        ('{"query": "x', "truncated"),
        ('{"query": "x", "limit": 1', "truncated"),
        ('{"query": NaN}', "invalid_json"),
        ('{"limit": 1e999, "query": "x"}', "invalid_json"),
        ('{"query": "x", "limit": ' + "9" * 5000 + "}", "invalid_json"),
        ('{"query": "x", "query": "y"}', "duplicate_key"),
        ('{"a": {"b": 1, "b": 2}, "query": "a\\": b"}', "duplicate_key"),
    ],
)
def test_what_is_no_object(arguments: str, kind: str) -> None:
    assert kinds(arguments) == [kind]


def test_what_is_too_large_or_too_deep() -> None:
    assert kinds(json.dumps({"query": "x" * 1_000_000})) == ["too_large"]
    for levels, kind in ((62, []), (63, ["too_deep"])):
        assert kinds('{"query": "x", "a": [%s]}' % ("[" * levels + "]" * levels)) == kind


def test_large_broken_arguments_are_not_mended_but_told() -> None:
    assert check(json.dumps({"query": "x" * 1_000})[:-1]).repairs == ("missing_closer",)
    assert kinds(json.dumps({"query": "x" * 250_000})[:-1]) == ["truncated"]


@pytest.mark.parametrize("size", [1, 250_000])
def test_what_is_not_mended_goes_out_as_written_under_a_mended_name(size: int) -> None:
    text = json.dumps({"query": "x" * size}, indent=3)
    for options in (Options(), Options(validate_json=False)):
        checked = check(text, name="Search", options=options)
        assert (checked.name, checked.repairs) == ("search", ("name_spelling",))
        assert checked.arguments == text


def test_repair_can_be_switched_off() -> None:
    off = Options(repair=False)
    for arguments in ('{"query": "x",}', '{"query": "x", "limit": "5"}', '"{}"', ""):
        assert kinds(arguments, options=off) != []
    assert kinds('{"query": "x"}', name="Search", options=off) == ["unknown_tool"]
    assert kinds('{"query": "x"}', options=off) == []


def test_odd_arguments_of_a_reply() -> None:
    assert check_call("search", None, TOOLS).failures  # type: ignore[arg-type]
    assert check_call(None, "{}", TOOLS).failures  # type: ignore[arg-type]
    checked = check_call("search", {"query": "x"}, TOOLS)  # type: ignore[arg-type]
    assert (checked.arguments, checked.repairs) == ('{"query":"x"}', ("arguments_not_text",))


def test_tools_in_all_their_forms() -> None:
    flat = {"type": "function", "name": "flat", "parameters": parameters("a", a="string")}
    anthropic = {"name": "claude", "input_schema": parameters("a", a="string")}
    custom = {"type": "custom", "custom": {"name": "free"}}
    legacy = {"name": "old", "parameters": parameters("a", a="string")}
    tools = tool_set([SEARCH, flat, anthropic, custom, legacy])
    assert tools.names == ("search", "flat", "claude", "free", "old")
    for name in ("flat", "claude", "old"):
        assert kinds("{}", tools, name) == ["missing_required"]
    assert kinds("{}", tools, "free") == []


@pytest.mark.parametrize(
    "tools", [None, 5, "x", {}, [None, 5, {}, {"function": 5}, {"function": {"name": 5}}]]
)
def test_odd_tool_lists_are_empty_ones(tools: object) -> None:
    assert tool_set(tools).names == ()


def test_a_tool_offered_twice_differently_is_not_checked() -> None:
    tools = tool_set(
        [tool("f", parameters("a", a="string")), tool("f", parameters("b", b="string"))]
    )
    assert kinds('{"b": "x"}', tools) == []


def test_equal_tools_are_compiled_once() -> None:
    again = tool_set([json.loads(json.dumps(SEARCH)), tool("g")])
    assert again.compiled("search") is tool_set([SEARCH]).compiled("search")
