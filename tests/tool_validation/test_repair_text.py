"""Each rule for the text of the arguments, with what it must leave alone."""

from __future__ import annotations

import json

import pytest

from tests.tool_validation.calls import check, kinds, mended, one, parameters

ANY = one(None)

MENDED = [
    # double_encoded
    ('"{\\"a\\": 1}"', {"a": 1}, ["double_encoded"]),
    (json.dumps(json.dumps(json.dumps({"a": 1}))), {"a": 1}, ["double_encoded"]),
    ('{\\"a\\": \\"x\\"}', {"a": "x"}, ["double_encoded"]),
    ('"{\'a\': 1}"', {"a": 1}, ["double_encoded", "single_quotes"]),
    ('"{\\"a\\": 1}"<|im_end|>', {"a": 1}, ["trailing_text", "double_encoded"]),
    # list_of_one
    ('[{"a": 1}]', {"a": 1}, ["list_of_one"]),
    # code_fence
    ('```json\n{"a": 1}\n```', {"a": 1}, ["code_fence"]),
    ('```json{"a": 1}', {"a": 1}, ["code_fence"]),
    ('Sure:\n```json\n{"a": 1}\n```\nDone.', {"a": 1},
     ["leading_text", "code_fence", "trailing_text"]),
    # leading_text
    ('Arguments: {"a": 1}', {"a": 1}, ["leading_text"]),
    ('<tool_call>{"a": 1}', {"a": 1}, ["leading_text"]),
    ('\ufeff{"a": 1}', {"a": 1}, ["leading_text"]),
    # trailing_text, extra_closer, duplicate_object
    ('{"a": 1}<|im_end|>', {"a": 1}, ["trailing_text"]),
    ('{"a": 1}"', {"a": 1}, ["trailing_text"]),
    ('{"a": 1}```', {"a": 1}, ["code_fence"]),
    ('{"a": 1} // done', {"a": 1}, ["trailing_text"]),
    ('{"a": 1}}', {"a": 1}, ["extra_closer"]),
    ('{"a": 1}]} </tool_call>', {"a": 1}, ["extra_closer", "trailing_text"]),
    ('{"a": 1}{"a": 1}', {"a": 1}, ["duplicate_object"]),
    ('{"a": 1}\n{"a": 1}\n{"a": 1}', {"a": 1}, ["duplicate_object"]),
    ('{"a": "x"{"a": "x", "b": 2}', {"a": "x", "b": 2}, ["duplicate_object"]),
    ('{"a": {"c": 1{"a": {"c": 1}}', {"a": {"c": 1}}, ["duplicate_object"]),
    # the reader's
    ("{'a': 'x'}", {"a": "x"}, ["single_quotes"]),
    ("{'a': \"it's\"}", {"a": "it's"}, ["single_quotes"]),
    ("{'a': 'it\\'s'}", {"a": "it's"}, ["single_quotes"]),
    ("{'a': '\\x00\\u00e9\\U0001f600\\n'}", {"a": "\0é😀\n"}, ["single_quotes"]),
    ("{'a': \"it's \\x01\"}", {"a": "it's \x01"}, ["single_quotes"]),
    ("{“a”: “x”}", {"a": "x"}, ["single_quotes"]),
    ('{"a": True, "b": None, "c": False}', {"a": True, "b": None, "c": False},
     ["python_literals"]),
    ('{"a": 1,}', {"a": 1}, ["trailing_comma"]),
    ('{"a": [1, 2, ], }', {"a": [1, 2]}, ["trailing_comma"]),
    ('{ , "a": 1}', {"a": 1}, ["trailing_comma"]),
    ('{"a": [, 1]}', {"a": [1]}, ["trailing_comma"]),
    ('{"a": 1},', {"a": 1}, ["trailing_comma"]),
    ('{"a": 1 "b": true\n"c": 2}', {"a": 1, "b": True, "c": 2}, ["missing_comma"]),
    ('{"a": [{"b": 1}\n{"b": 2} [3]]}', {"a": [{"b": 1}, {"b": 2}, [3]]}, ["missing_comma"]),
    ('{"a": .25, "b": -1., "c": +7, "d": 82_461_110}',
     {"a": 0.25, "b": -1.0, "c": 7, "d": 82461110}, ["odd_number"]),
    ('{"a": TRUE, "b": NULL}', {"a": True, "b": None}, ["python_literals"]),
    ('{{"a": "x"}', {"a": "x"}, ["doubled_braces"]),
    ('{"a"=1, "b" => 2}', {"a": 1, "b": 2}, ["equals_sign"]),
    ('{a: 1, b-c: 2}', {"a": 1, "b-c": 2}, ["unquoted_keys"]),
    ('{"a": "x\ny\tz"}', {"a": "x\ny\tz"}, ["unescaped_newline"]),
    ('{"a": "\\d+\\.\\w"}', {"a": "\\d+\\.\\w"}, ["invalid_escape"]),
    ('{"a": "it\\\'s"}', {"a": "it's"}, ["invalid_escape"]),
    ('{"a": "C:\\Users\\new\\bar.txt"}', {"a": "C:\\Users\\new\\bar.txt"},
     ["invalid_escape"]),
    ('{"a": "C:\\build\\new.txt", "b": ["c:\\t\\foo"]}',
     {"a": "C:\\build\\new.txt", "b": ["c:\\t\\foo"]}, ["invalid_escape"]),
    ('{"a": "d:\\users\\x"}', {"a": "d:\\users\\x"}, ["invalid_escape"]),
    ('{"a": "I don\'t know that it\\\'s \\\'x\\\'"}', {"a": "I don't know that it's 'x'"},
     ["invalid_escape"]),
    ('{"a": 1, /* first */ "b": 2}', {"a": 1, "b": 2}, ["comments"]),
    ('{"a": 1, // first\n "b": 2}', {"a": 1, "b": 2}, ["comments"]),
    ('{"a": "x"', {"a": "x"}, ["missing_closer"]),
    ('{"a": {"b": ["x", true', {"a": {"b": ["x", True]}}, ["missing_closer"]),
    ('{"a": [1, 2}', {"a": [1, 2]}, ["missing_closer"]),
    ('{"a": {"b": [1, 2}]}', {"a": {"b": [1, 2]}}, ["missing_closer", "extra_closer"]),
    ('{"a": [{"b": 1], "c": 2}', {"a": [{"b": 1}], "c": 2}, ["missing_closer"]),
    ('{{"a": "x"}}', {"a": "x"}, ["doubled_braces"]),
    ('{}{"a": 1}', {"a": 1}, ["leading_text"]),
    ('{}\n{"a": 1}}', {"a": 1}, ["leading_text", "extra_closer"]),
    ('{}{}', {}, ["duplicate_object"]),
    # odd_space
    ('{\u00a0"a": 1}', {"a": 1}, ["odd_space"]),
    ('{"a":\u3000[1\u00a0, 2]\ufeff}', {"a": [1, 2]}, ["odd_space"]),
    ('```json\n{\n\u00a0\u00a0"a": "x\u00a0y"\n}\n```', {"a": "x\u00a0y"},
     ["code_fence", "odd_space"]),
    ('{\u00a0"a": 1}{"a": 1}', {"a": 1}, ["odd_space", "duplicate_object"]),
]  # fmt: skip


@pytest.mark.parametrize(("text", "value", "rules"), MENDED)
def test_one_reading(text: str, value: object, rules: list[str]) -> None:
    assert mended(text, ANY) == (value, tuple(rules))


NOT_MENDED = [
    # no second call is dropped, and no data
    '{"a": 1}{"a": 2}',
    '{"a": 1} {"name": "other", "arguments": {}}',
    '{"a": 1}, "b": 2}',
    '{"a": 1} Observation: {"b": 2}',
    '{"a": 1} b="x"',
    '{"a": "x"}{"a": "x',
    '{"a": {"a": 1 x} b',
    '{"a": "C:\\Users\\me said\\nhello"}',
    '{"a": "C:\\Users\\new C:\\x"}',
    'path: "x", {"a": 1}',
    'f(x={"a": 1})',
    '<arg_key>b</arg_key><arg_value>{"a": 1}',
    '[{"a": 1}, {"a": 1}]',
    '{}{"a": 1}{"a": 2}',
    '{"a": 12, "b": 1}8',
    '{"a": 29979//458\n}',
    # the end of a value is never made up
    '{"a": "x',
    '{"a": "x\\',
    '{"a": 12',
    '{"a": "x",',
    '{"a": "x", "b"',
    '{"a": "x", "b":',
    "{",
    '```json\n{"a": "x',
    # words are no strings, odd numbers no numbers
    "{a: foo}",
    '{"a": yes}',
    '{"a": 007}',
    '{"a": 0x1f}',
    '{"a": NaN}',
    # members are never guessed
    '{"a" "x"}',
    '{"a": "x" "b": "y"}',
    '{"a": , "b": 1}',
    '{"a": 1,, "b": 2}',
    '{"a": 1, "a": 2}',
    "{'a': 1, 'a': 2,}",
    # escapes that can be read in two ways
    '{"a": "\\bword\\d"}',
    "{\"a\": \"echo 'It'\\''s'\"}",
    "{\"a\": \"x LIKE '5|%' ESCAPE '\\'\"}",
    '{"a": "print(\'it\\\'s\')"}',
    '{"a": "\\u12"}',
    '{"a": "\\x41"}',
    # a quotation mark inside a string ended it too early: half a file is no file
    '{"path": "a", "content": "say "end."}$HOME && ls"}',
    '{"content": "end."} rest of the file"}',
    "{'content': 'x'} and 'more'}",
    # only the quotes are escaped, or all that JSON escapes
    '{\\"path\\": \\"C:\\\\new\\"}',
    '{\\"a\\": \\"say \\\\\\"hi\\\\\\"\\"}',
    # a comment with data, or one that may have eaten the rest
    '{"a": 1, // "b": 2\n "c": 3}',
    '{"a": 1 // note }',
    # single quotes that end early
    "{'a': 'it's'}",
    # a bracket in the wrong place: whose member is the next?
    '{"a": {"b": [1, {"c": 2}}], "d": 3}}',
    '{"z": {"a": {"b": [1, {"c": 2}}]}, "d": 3}}',
    # depth
    "{'a':" * 100,
]


@pytest.mark.parametrize("text", NOT_MENDED)
def test_no_reading_or_more_than_one(text: str) -> None:
    assert kinds(text, ANY) != []


@pytest.mark.parametrize(
    "text", ['b: {"x": 1}', "<b>{'x': 1}</b>", 'The b: {"a": 1, "x": 2}', "b {}"]
)
def test_what_names_one_parameter_is_no_word_before_all(text: str) -> None:
    tools = one(parameters(a={}, b={"type": "object"}))
    assert kinds(text, tools) == ["not_an_object"]
    assert mended('The a: {"a": 1}', tools) == ({"a": 1}, ("leading_text",))


def test_a_clean_part_goes_out_as_it_was_written() -> None:
    checked = check('```json\n{"a":1.50,  "b":"\\u00e9"}\n```', ANY)
    assert checked.arguments == '{"a":1.50,  "b":"\\u00e9"}'


def test_numbers_keep_their_value() -> None:
    text = "{'a': 123456789012345678901234567890, 'b': 1e-06, 'c': 4500.0}"
    assert check(text, ANY).arguments == (
        '{"a": 123456789012345678901234567890, "b": 1e-06, "c": 4500.0}'
    )


def test_lone_surrogates_stay_escaped() -> None:
    assert check('{"a": "\\ud800",}', ANY).arguments == '{"a": "\\ud800"}'
    assert mended('{"a": "\\ud83d\\ude00",}', ANY)[0] == {"a": "😀"}


EDIT = one(parameters("path", "text", path="string", text="string"))


def test_unescaped_quotes_around_words() -> None:
    value, rules = mended('{"path": "a.md", "text": "He said "no" and left"}', EDIT)
    assert value == {"path": "a.md", "text": 'He said "no" and left'}
    assert rules == ("unescaped_quotes",)


@pytest.mark.parametrize(
    "text",
    [
        '{"path": "a.md", "text": "He said "no"}',
        '{"path": "a.md", "text": "He said "no", "mode": "w"}',
        '{"path": "a.md", "text": "x = {"a": "b", "c": "d"}"}',
        '{"path": "a.md", "text": "["a", "b"]"}',
        '{"path": "a.md"}{"path": "b", "text": "c"}',
        '{"path": "a.md", "text": "say "hi", "unknown": "x"}',
        '{"path": "a.md", "text": "He said "no" and left',
    ],
)
def test_quotes_that_may_end_the_string(text: str) -> None:
    assert kinds(text, EDIT) != []


def test_a_closer_missing_further_up_is_not_put_at_the_end() -> None:
    inner = parameters("x", x="integer")
    tools = one(parameters("a", a=inner, b="string"))
    assert mended('{"a": {"x": 1}, "b": "y"', tools)[0] == {"a": {"x": 1}, "b": "y"}
    assert kinds('{"a": {"x": 1, "b": "y"}', tools) == ["invalid_json"]


def test_nothing_is_an_empty_object_for_a_tool_that_needs_nothing() -> None:
    for text in ("", "  ", "null", "None", "[]", '""', " [] "):
        checked = check(text, one(parameters(limit="integer")))
        assert (checked.arguments, checked.repairs) == ("{}", ("empty_arguments",))
    assert kinds("", one(parameters("a", a="string"))) == ["missing_required"]
