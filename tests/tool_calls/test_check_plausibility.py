"""Valid calls that say nothing: empty names and placeholders, and what only looks like them."""

from __future__ import annotations

import json
from typing import Any

import pytest

from app.tool_calls.check import Options
from app.tool_calls.conversation import conversation_lookup
from app.tool_calls.vocabulary import Vocabulary
from tests.tool_calls.calls import STRING, check, kinds, of, one, parameters, said

NULLABLE: list[dict[str, Any]] = [
    {"type": ["string", "null"]},
    {"anyOf": [{"type": "string"}, {"type": "null"}]},
    {"oneOf": [{"type": "null"}, {"type": "string"}]},
    {"anyOf": [{"type": "string"}, {"type": "null"}], "default": None},
    {"type": "string", "nullable": True},
    {"type": "string", "default": None},
]


@pytest.mark.parametrize(
    "name",
    ["path", "filePath", "file_name", "url", "query", "search_text", "command", "pattern", "id",
     "DNA_id", "message_id", "game_title", "country", "to_currency", "color2", "species",
     "country_code", "content_type", "detail_level", "query_str", "new_path", "file_pattern"],
)  # fmt: skip
@pytest.mark.parametrize("value", ["", " ", "\n\t"])
def test_what_must_name_something_is_not_empty(name: str, value: str) -> None:
    assert of(name, value) == ["empty_value"]


@pytest.mark.parametrize(
    "name",
    ["content", "text", "body", "new_string", "newString", "old_text", "replacement", "value",
     "file_content", "message", "comment", "notes", "suffix", "separator", "new_source", "input",
     "code", "message_text", "insert_text", "new_str", "old_str", "file_text", "replace",
     "replace_with"],
)  # fmt: skip
@pytest.mark.parametrize("value", ["", " ", "...", "TODO", "string", "<text>", "<content>"])
def test_free_text_may_be_empty_or_anything(name: str, value: str) -> None:
    assert of(name, value) == []


def test_the_sentences() -> None:
    tools = one(parameters("query", query="string"))
    (empty,) = check('{"query": ""}', tools).failures
    assert empty.error == 'field "query" in function "f" is empty; give its real value'
    (placeholder,) = check('{"query": "<query>"}', tools).failures
    assert placeholder.error == (
        'field "query" in function "f" holds the placeholder "<query>"; give its real value'
    )


@pytest.mark.parametrize(
    "schema",
    [
        {**STRING, "enum": ["a", ""]},
        {**STRING, "default": ""},
        {**STRING, "minLength": 0},
        {**STRING, "description": "Leave empty for the root."},
        {**STRING, "description": "Folder, may be empty"},
        {**STRING, "description": 'The folder ("" for all).'},
    ],
)
def test_a_schema_that_allows_nothing_is_believed(schema: Any) -> None:
    assert of("path", "", schema) == []


@pytest.mark.parametrize(
    "schema",
    [
        {**STRING, "description": "The path. Must not be empty."},
        {**STRING, "description": "A non-empty string"},
    ],
)
def test_a_schema_that_forbids_nothing_is_believed(schema: Any) -> None:
    assert of("path", "", schema) == ["empty_value"]


def test_what_the_schema_shapes_must_be_there_even_as_text() -> None:
    assert of("content", "", {**STRING, "format": "date"}) == ["empty_value"]
    assert of("content", "", {**STRING, "pattern": "^a*$"}) == ["empty_value"]
    assert of("content", "", {**STRING, "minLength": 1}) != []


def test_optional_and_other_parameters_are_not_looked_at() -> None:
    tools = one(parameters("n", path="string", n="integer"))
    assert kinds('{"n": 1, "path": ""}', tools) == []
    assert kinds('{"n": 1, "path": "<path>"}', tools) == []


def test_nested_parameters_are_looked_at() -> None:
    file = parameters("path", path="string")
    tools = one(parameters("file", file=file, files={"type": "array", "items": file}))
    assert kinds('{"file": {"path": ""}}', tools) == ["empty_value"]
    (failure,) = check('{"file": {"path": "a"}, "files": [{"path": ""}]}', tools).failures
    assert '"files[0].path"' in failure.error


def test_optional_types_and_references_are_looked_at() -> None:
    for schema in NULLABLE:
        assert of("path", "<path>", schema) == ["placeholder"]
        assert of("path", " ", schema) == ["empty_value"]
    tools = one({"$defs": {"p": STRING}, **parameters("path", path={"$ref": "#/$defs/p"})})
    assert kinds('{"path": ""}', tools) == ["empty_value"]


@pytest.mark.parametrize("schema", NULLABLE)
def test_nothing_may_stand_for_null(schema: Any) -> None:
    for name in ("path", "query", "api_key"):
        assert of(name, "", schema) == []
    assert of("content", "", {**schema, "description": "Never empty"}) == []
    assert of("path", "", {**schema, "description": "Null for all. Never empty."}) != []


def test_nothing_may_stand_for_null_behind_references() -> None:
    optional = {"anyOf": [{"$ref": "#/$defs/p"}, {"type": "null"}]}
    inner = parameters("path", path=optional)
    tools = one({"$defs": {"p": STRING}, **parameters("file", file=inner)})
    assert kinds('{"file": {"path": ""}}', tools) == []
    assert kinds('{"file": {"path": "<path>"}}', tools) == ["placeholder"]


def test_nothing_is_no_date_though_null_may_stand_there() -> None:
    assert of("start", "", {"type": ["string", "null"], "format": "date"}) == ["empty_value"]


@pytest.mark.parametrize(
    "value",
    ["<query>", "<your query>", "<path>", "YOUR_API_KEY", "your-api-key", "YOUR_QUERY_HERE",
     "your_api_key_here", "insert query here", "[insert query]", "[your query]", "...", "…",
     "TODO", "TBD", "string", "query", "Query", "{{query}}", "{query}", "example_query",
     "placeholder", "<...>"],
)  # fmt: skip
def test_placeholders(value: str) -> None:
    assert of("query", value) == ["placeholder"]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("city", "[city]"),
        ("city", "[City]"),
        ("city", "[ city name ]"),
        ("city_name", "[city]"),
        ("location", "[city]"),
        ("start_date", "[START_DATE]"),
        ("city", "{{city_here}}"),
        ("city", "<city_here>"),
        ("city", "city_placeholder"),
        ("city", "CITY_HERE"),
        ("start_date", "start-date-placeholder"),
        ("destination", "[destination]"),
    ],
)
def test_a_parameters_own_name_in_brackets_is_a_placeholder(name: str, value: str) -> None:
    assert of(name, value) == ["placeholder"]
    assert of("content", value) == []


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *((name, f"[{name}]") for name in ("slug", "id", "name", "folder", "locale", "table")),
        *((name, f"${{{name}}}") for name in ("variable", "version", "url", "path", "city")),
        *((name, f"{name}_placeholder") for name in ("query", "key", "name", "search", "image")),
        ("pattern", "pattern_here"),
        ("selector", "[selector]"),
        ("column", "[Column]"),
        ("path", "app/[path]/page.tsx"),
        ("city", "[New York City]"),
        ("topic", "[sic]"),
        ("pattern", "[pattern]"),
        ("regex", "[a-z]"),
        ("title", "[REC]"),
        ("key", "[Escape]"),
        ("path", "${workspaceFolder}"),
        ("filename_template", "{name}_{date}"),
        ("city", "is it here"),
        ("query", "what is here"),
    ],
)
def test_brackets_and_endings_that_are_no_placeholder(name: str, value: str) -> None:
    assert of(name, value) == []


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("query", "how to query"),
        ("query", "<div>"),
        ("query", "string theory"),
        ("query", "your name"),
        ("query", "wait..."),
        ("query", "to do"),
        ("query", "example"),
        ("query", "{a} and {b}"),
        ("pattern", "TODO"),
        ("pattern", "<Button>"),
        ("pattern", "<path>"),
        ("pattern", "string"),
        ("regex", "placeholder"),
        ("search", "TODO"),
        ("find", "<path>"),
        ("status", "todo"),
        ("status", "TODO"),
        ("app_name", "Todo"),
        ("path", "./..."),
        ("path", "."),
        ("path", "/path/to/file"),
        ("path", "example.py"),
        ("url", "https://example.com/users/{id}"),
        ("title", "Your Name"),
        ("title", "Enter Sandman"),
        ("email", "user@example.com"),
        ("command", "echo <<EOF"),
        ("name", "names"),
        ("type", "text"),
        ("date", "dontcare"),
        ("id", "null"),
    ],
)
def test_what_only_looks_like_a_placeholder(name: str, value: str) -> None:
    assert of(name, value) == []


def test_values_that_the_schema_names_are_no_placeholders() -> None:
    assert of("type", "string", {**STRING, "enum": ["string", "number"]}) == []
    assert of("api_key", "YOUR_API_KEY", {**STRING, "default": "YOUR_API_KEY"}) == []
    assert of("query", "TODO", {**STRING, "examples": ["TODO"]}) == []


@pytest.mark.parametrize(
    ("messages", "value", "expected"),
    [
        (said("find all TODOs"), "TODO", []),
        (said("what does <query> mean?"), "<query>", []),
        (said([{"type": "text", "text": "search for YOUR_API_KEY"}]), "your_api_key", []),
        (said("search for '...' please"), "...", []),
        (said("wait... what?"), "...", ["placeholder"]),
        (said("a substring"), "string", ["placeholder"]),
        (said("the string"), "string", []),
        (said("nothing of the kind"), "TODO", ["placeholder"]),
        (said("TODO list", role="tool"), "TODO", []),
        ([None, 5, {}, {"content": 5}, {"content": [None, {}]}], "TODO", ["placeholder"]),
        (
            [{"role": "assistant", "tool_calls": [{"function": {"arguments": "<query>"}}]}],
            "<query>",
            ["placeholder"],
        ),
    ],
)
def test_what_stands_in_the_conversation(
    messages: list[Any], value: str, expected: list[str]
) -> None:
    tools = one(parameters("query", query="string"))
    known = conversation_lookup(messages)
    assert kinds(json.dumps({"query": value}), tools, known=known) == expected


def test_the_conversation_is_read_only_when_it_matters() -> None:
    def messages() -> Any:
        raise AssertionError("read")
        yield

    tools = one(parameters("query", query="string"))
    assert kinds('{"query": "cats"}', tools, known=conversation_lookup(messages())) == []


def test_the_words_are_options() -> None:
    words = Options(vocabulary=Vocabulary(naming=frozenset({"content"}), free_text=frozenset()))
    assert of("content", "", options=words) == ["empty_value"]
    lax = Options(vocabulary=Vocabulary(unlisted=False))
    assert of("metal", "", options=lax) == []
    assert of("path", "", options=lax) == ["empty_value"]


LEAKED = [
    '{"page<arg_key": "num</arg_key><arg_value>7"}',
    '{"command": ", \\"ls\\"}.functions.bash:1 <|tool_call_argument_begin|> {"}',
    '{"command": "ls</arg_value>"}',
    '{"command": "ls\\n</arg_value></tool_call>"}',
    '{"command": "ls</arg_value><arg_key>path</arg_key><arg_value>."}',
    '{"command": "<|python_tag|>"}',
    '{"query": "cats<|channel|>commentary"}',
    '{"query": "cats</arg_value>"}',
    '{"a": {"<tool_call>": 1}, "command": "ls"}',
]


@pytest.mark.parametrize("arguments", LEAKED)
def test_markup_of_calls_inside_arguments(arguments: str) -> None:
    tools = one({"type": "object", "properties": {"command": STRING}})
    assert kinds(arguments, tools) == ["leaked_markup"]


@pytest.mark.parametrize(
    "arguments",
    [
        '{"content": "print(\\"<|tool_call_begin|>\\")"}',
        '{"command": "cat <<EOF"}',
        '{"command": "grep -rn \'<tool_call>\' src"}',
        '{"command": "sed -i s/<tool_call>/x/ a.txt"}',
        '{"title": "The parser drops <tool_call> in lists"}',
        '{"query": "what does </arg_key> mean"}',
        '{"pattern": "<|python_tag|>"}',
        json.dumps({"prompt": "Parse what models write. " * 20 + '<tool_call>{"name": …}'}),
        '{"command": "grep \\"<div>\\" a.html"}',
        '{"<b>": 1}',
    ],
)
def test_markup_that_is_not_a_calls(arguments: str) -> None:
    tools = one({"type": "object", "properties": {"command": STRING, "content": STRING}})
    assert kinds(arguments, tools) == []


def test_markup_that_is_talked_about() -> None:
    tools = one(parameters("command", command="string"))
    known = conversation_lookup(said("where do we emit <|tool_call_begin|> ?"))
    assert kinds('{"command": "grep -r \\"<|tool_call_begin|>\\" ."}', tools, known=known) == []


@pytest.mark.parametrize(
    "name",
    ["type", "column_type", "dataType", "dtype", "format", "node_type", "key_type", "return_type",
     "kind", "property_type"],
)  # fmt: skip
def test_string_is_a_type(name: str) -> None:
    assert of(name, "string") == []


@pytest.mark.parametrize(
    "name",
    ["key", "keys", "char", "keystroke", "press_key", "hotkey", "key2", "keyCode", "special_key"],
)
def test_a_blank_is_a_key(name: str) -> None:
    assert of(name, " ") == []
    assert of(name, "") == ["empty_value"]


@pytest.mark.parametrize("name", ["api_key", "accessKey", "private_key", "to", "send_to"])
def test_a_blank_is_no_key_that_opens_something(name: str) -> None:
    assert of(name, " ") == of(name, "") == ["empty_value"]


@pytest.mark.parametrize("name", ["query", "search", "selector", "element", "tag"])
def test_a_tag_is_something_to_look_for(name: str) -> None:
    assert of(name, "<div>") == []
    assert of(name, f"<{name}>") == of(name, "<your value>") == ["placeholder"]
