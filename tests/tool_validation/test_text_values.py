"""Names and values of calls written as text: what they keep, whatever they look like."""

from __future__ import annotations

import json
from collections.abc import Set
from typing import Any

import pytest

from mlx_stack_proxy.tool_validation.check import check_call
from mlx_stack_proxy.tool_validation.formats.tagged import typed, types_of
from mlx_stack_proxy.tool_validation.schemas import compile_schema
from mlx_stack_proxy.tool_validation.text_calls import rescue
from mlx_stack_proxy.tool_validation.tools import NO_TOOLS, ToolSet
from tests.tool_validation.test_text_samples import TOOLS, calls


def test_values_keep_what_looks_like_markup() -> None:
    title = 'a "b" <tool_call>{"name": "list_shelves", "arguments": {}}</tool_call>\n\t{x}] é 🎉'
    body = json.dumps({"name": "find_book", "arguments": {"title": title}}, ensure_ascii=False)
    for text in (
        f"<tool_call>{body}</tool_call>",
        f"[TOOL_CALLS][{body}]",
        body,
        f"<tool_call>\n<function=find_book>\n<parameter=title>\n{title}\n</parameter>\n</function>",
        f"<tool_call>find_book\n<arg_key>title</arg_key><arg_value>{title}</arg_value></tool_call>",
        f'<｜DSML｜function_calls><｜DSML｜invoke name="find_book"><｜DSML｜parameter name="title" '
        f'string="true">{title}</｜DSML｜parameter></｜DSML｜invoke></｜DSML｜function_calls>',
        f'<|tool_call>call:find_book{{title:<|"|>{title}<|"|>}}<tool_call|>',
        f"[find_book(title={title!r})]",
    ):
        assert calls(rescue(text, TOOLS)) == [("find_book", {"title": title})], text


def test_nested_values_of_every_type() -> None:
    arguments = {
        "title": "T",
        "tags": ["a", "b"],
        "place": {"row": 3},
        "rare": False,
        "price": None,
    }
    xml = "<parameter=title>T</parameter>\n" + "".join(
        f"<parameter={key}>\n{json.dumps(value)}\n</parameter>\n"
        for key, value in arguments.items()
        if key != "title"
    )
    gemma = 'title:<|"|>T<|"|>,tags:[<|"|>a<|"|>,<|"|>b<|"|>],place:{row:3},rare:false,price:null'
    m3 = "]<]minimax[>["
    tags = "".join(f"{m3}<item>{tag}{m3}</item>" for tag in "ab")
    for text in (
        f"<tool_call>\n<function=shelve>\n{xml}</function>\n</tool_call>",
        f"<tool_call>{json.dumps({'name': 'shelve', 'arguments': arguments})}</tool_call>",
        "[shelve(title='T', tags=['a', 'b'], place={'row': 3}, rare=False, price=None)]",
        f"<|tool_call>call:shelve{{{gemma}}}<tool_call|>",
        f'{m3}<tool_call>{m3}<invoke name="shelve">{m3}<title>T{m3}</title>'
        f"{m3}<tags>{tags}{m3}</tags>"
        f"{m3}<place>{m3}<row>3{m3}</row>{m3}</place>{m3}<rare>false{m3}</rare>"
        f"{m3}<price>null{m3}</price>{m3}</invoke>{m3}</tool_call>",
    ):
        assert calls(rescue(text, TOOLS)) == [("shelve", arguments)], text


def test_what_a_tag_calls_text_is_text_where_it_may_be() -> None:
    schema = {"title": {"type": ["string", "integer"]}, "row": {"type": "integer"}, "note": {}}
    values = "".join(
        f'<｜DSML｜parameter name="{key}" string="{said}">5</｜DSML｜parameter>'
        for key, said in (("title", "true"), ("row", "true"), ("note", "true"), ("other", "false"))
    )
    text = f'<｜DSML｜invoke name="shelve">{values}</｜DSML｜invoke>'
    found = rescue(text, ToolSet({"shelve": {"type": "object", "properties": schema}}))
    assert calls(found) == [("shelve", {"title": "5", "row": 5, "note": "5", "other": 5})]


def tagged(arguments: str, end: str = "}</tool_call>") -> str:
    return f'<tool_call>{{"name": "find_book", "arguments": {arguments}{end}'


def written(title: str, line: str = "\n") -> str:
    lines = ("<function=find_book>", "<parameter=title>", title, "</parameter>", "</function>")
    return line.join(lines)


QUOTED = ToolSet({'"find"': {"properties": {'"title"': {"type": "string"}}}})
FLY = ToolSet({"fly": {"properties": {"from": {}, "max-stops": {}}}})


@pytest.mark.parametrize(
    ("text", "title"),
    [
        # One line break around a text goes, blanks and further ones stay.
        (written("    if x:\n        y"), "    if x:\n        y"),
        (written("Momo", "\r\n"), "Momo"),
        ("<tool_call>find_book<arg_key>title</arg_key><arg_value>  a\n</arg_value></tool_call>",
         "  a\n"),
        ('<tool_call>\n{name: "find_book", arguments: {title: "Momo"}}\n</tool_call>', "Momo"),
        ("<tool_call>{'name': 'find_book', 'arguments': {'title': \"it's\"}}</tool_call>", "it's"),
        (tagged('{"title": "a\nb"}'), "a\nb"),
        (tagged('{"title": "Momo",}', ",}</tool_call>"), "Momo"),
    ],
)  # fmt: skip
def test_a_title_is_read_as_it_is_meant(text: str, title: str) -> None:
    assert calls(rescue(text, TOOLS)) == [("find_book", {"title": title})]


def test_names_that_python_would_not_take() -> None:
    text = '<function="find">\n<parameter="title">\n"Momo"\n</parameter>\n</function>'
    assert calls(rescue(text, QUOTED)) == [('"find"', {'"title"': '"Momo"'})]
    text = "<|tool_call_start|>[fly(from='SFO, to=LAX', max-stops=2)]<|tool_call_end|>"
    assert calls(rescue(text, FLY)) == [("fly", {"from": "SFO, to=LAX", "max-stops": 2})]


def test_the_values_of_good_arguments_stay() -> None:
    raw = '{"title":  "x",\n "year": 1E3, "a": 1.50, "b": 12345678901234567890}'
    assert calls(rescue(tagged(raw), TOOLS)) == [("find_book", json.loads(raw))]


@pytest.mark.parametrize(
    ("raw", "end"),
    [
        ('{"title": "a "b" c"}', "}</tool_call>"),
        ('{"path": "x\\new\\d"}', "}</tool_call>"),
        ('{"title": "a", "title": "b"}', "}</tool_call>"),
        ('{"title": "cut of', ""),
    ],
)
def test_arguments_that_do_not_parse_are_left_to_the_check(raw: str, end: str) -> None:
    for text in (tagged(raw, end), f"[TOOL_CALLS]find_book[ARGS]{raw}"):
        assert [call.arguments for call in rescue(text, TOOLS).calls] == [raw]


PAGE = ToolSet(
    {"write": {"properties": {"path": {"type": "string"}, "content": {"type": "string"}}}}
)
WRITTEN = {
    "qwen3_xml": "<function=write>\n<parameter=path>\na.md\n</parameter>\n<parameter=content>\n{}\n"
    "</parameter>\n</function>",
    "invoke_xml": '<function_calls>\n<invoke name="write">\n<parameter name="path">a.md</parameter>'
    '\n<parameter name="content">{}</parameter>\n</invoke>\n</function_calls>',
    "glm": "<tool_call>write\n<arg_key>path</arg_key>\n<arg_value>a.md</arg_value>\n"
    "<arg_key>content</arg_key>\n<arg_value>{}</arg_value>\n</tool_call>",
}


@pytest.mark.parametrize("text", WRITTEN.values(), ids=WRITTEN)
@pytest.mark.parametrize(
    "content",
    [
        "<parameter>y</parameter>",
        "See:\n<function=f>\n<parameter=query>\nx\n</parameter>\n</function>\nThat is all.",
        '<invoke name="f"><parameter name="query">x</parameter></invoke>',
        "</function>",
        "<tool_call>f\n<arg_key>x</arg_key>\n<arg_value>1</arg_value>\n</tool_call>",
    ],
)
def test_a_file_may_hold_the_tags_of_its_own_format(text: str, content: str) -> None:
    found = rescue(text.replace("{}", content), PAGE)
    assert calls(found) == [("write", {"path": "a.md", "content": content})]
    assert found.content == ""


@pytest.mark.parametrize(
    ("format_name", "content"),
    [
        ("qwen3_xml", "<parameter=path>z</parameter>"),
        ("invoke_xml", '<parameter name="path">z</parameter>'),
        ("glm", "a call ends with </arg_value>\n</tool_call>, as a rule"),
    ],
)
def test_a_value_whose_end_is_unclear_is_refused(format_name: str, content: str) -> None:
    """Neither half a file nor another file's path is written: the model is asked again."""
    (call,) = rescue(WRITTEN[format_name].replace("{}", content), PAGE).calls
    assert check_call("write", call.arguments, PAGE).failures


def test_a_pair_that_comes_twice_stays_twice() -> None:
    pairs = "<arg_key>path</arg_key><arg_value>{}</arg_value>"
    text = f"<tool_call>write{pairs.format('a')}{pairs.format('b')}</tool_call>"
    (call,) = rescue(text, PAGE).calls
    assert call.arguments == '{"path": "a", "path": "b"}'


@pytest.mark.parametrize(
    ("text", "title"),
    [
        (
            '<function_calls>\n  <invoke name="find_book">\n    <parameter name="title">\n'
            "        Momo\n    </parameter>\n  </invoke>\n</function_calls>",
            "Momo",
        ),
        (
            "<tool_call>find_book\n  <arg_key>title</arg_key>\n  <arg_value>\n    Momo\n"
            "  </arg_value>\n</tool_call>",
            "Momo",
        ),
        (
            "<tool_call>find_book\n  <arg_key>title</arg_key>\n  <arg_value>\n  if x:\n      y\n"
            "  </arg_value>\n</tool_call>",
            "if x:\n    y",
        ),
        (
            "<tool_call>find_book\n<arg_key>title</arg_key>\n<arg_value>\n  Momo\n</arg_value>\n"
            "</tool_call>",
            "\n  Momo\n",
        ),
    ],
)
def test_indented_tags_indent_their_values(text: str, title: str) -> None:
    assert calls(rescue(text, TOOLS)) == [("find_book", {"title": title})]


def test_a_lone_value_is_the_first_parameters_if_no_other_is_required() -> None:
    city, days = {"type": "string"}, {"type": "integer"}
    schema = {"type": "object", "properties": {"city": city, "days": days}}
    first, second = ({**schema, "required": [name]} for name in ("city", "days"))
    text = 'weather("Paris")'
    assert calls(rescue(text, ToolSet({"weather": first}))) == [("weather", {"city": "Paris"})]
    for other in (second, schema):
        assert rescue(text, ToolSet({"weather": other})).calls == ()


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ("It is a marsupial.<|im_end|>", "It is a marsupial."),
        ("It is a marsupial.[e~[", "It is a marsupial."),
        ("It is a marsupial.<|user|>", "It is a marsupial."),
        ("GLM's turns begin with <|user|>", None),
        ("<|message|>A marsupial.<|end|>", "A marsupial."),
        (
            "<|channel|>analysis<|message|>Easy.<|end|><|start|>assistant<|channel|>final"
            "<|message|>A marsupial.<|return|>",
            "A marsupial.",
        ),
        ("Write <tool_call> before it.", "Write <tool_call> before it."),
        ("<|tool_call|> is Granite's, <|im_end|> ChatML's.", None),
    ],
)
def test_marks_are_taken_out_of_a_text_where_no_tools_are_offered(
    text: str, left: str | None
) -> None:
    assert rescue(text, NO_TOOLS).content == (left or text)


# Values written without types, typed by the schema


def types(schema: Any, **definitions: Any) -> Set[str]:
    compiled = compile_schema({"properties": {"x": schema}, "$defs": definitions})
    return types_of(compiled.schema.get("properties", {}).get("x"))


@pytest.mark.parametrize(
    ("raw", "schema", "value"),
    [
        ("5", {"type": "string"}, "5"),
        ('{"a": 1}', {"type": "string"}, '{"a": 1}'),
        ("  a ", {"type": "string"}, "  a "),
        ("5", {"type": "integer"}, 5),
        ("5.0", {"type": "integer"}, 5),
        ("5.5", {"type": "integer"}, "5.5"),
        ("five", {"type": "integer"}, "five"),
        ("-2.5e3", {"type": "number"}, -2500.0),
        ("007", {"type": "integer"}, "007"),
        ("True", {"type": "boolean"}, True),
        ("yes", {"type": "boolean"}, "yes"),
        ("null", {"type": ["integer", "null"]}, None),
        ("None", {"type": ["integer", "null"]}, None),
        ("none", {"type": "string", "enum": ["none", "some"]}, "none"),
        ("42", {"type": ["string", "null"]}, "42"),
        ("null", {"type": ["string", "null"]}, None),
        ('"hello"', {"type": ["string", "null"]}, '"hello"'),
        ("42", {"type": ["string", "integer"]}, 42),
        ("[1, 2]", {"type": "array"}, [1, 2]),
        ("['a', 'b']", {"type": "array"}, ["a", "b"]),
        ("{'a': True}", {"type": "object"}, {"a": True}),
        ("[1]", {"type": "object"}, "[1]"),
        ('["a"]', {"anyOf": [{"type": "array"}, {"type": "null"}]}, ["a"]),
        ("2", {"enum": [1, 2, 3]}, 2),
        ("2", {"enum": ["1", "2"]}, "2"),
        ("2", {"$ref": "#/$defs/count"}, 2),
        ("2", {"$ref": "#/$defs/name"}, "2"),
        ("2", {}, 2),
        ("a b", {}, "a b"),
        ("2", {"type": "any"}, 2),
        ("2", {"properties": {}}, "2"),
    ],
)
def test_by_schema(raw: str, schema: Any, value: Any) -> None:
    found = typed(raw, types(schema, count={"type": "integer"}, name={"type": "string"}))
    assert found == value
    assert type(found) is type(value)


def test_a_reference_to_itself_ends() -> None:
    circles = {"a": {"$ref": "#/$defs/a"}, "b": {"anyOf": [{"$ref": "#/$defs/b"}] * 2}}
    for reference in ("#/$defs/a", "#/$defs/b", "https://example.org/schema"):
        assert types({"$ref": reference}, **circles) == set()
