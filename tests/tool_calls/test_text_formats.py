"""Each format alone, with prose around it, twice, without its end, and with hard values."""

from __future__ import annotations

import json
from typing import Any

import pytest

from app.tool_calls.check import check_call
from app.tool_calls.formats.base import Block, Format, Source
from app.tool_calls.formats.scanner import ROWS
from app.tool_calls.schemas import tool_set
from app.tool_calls.text_calls import Rescued, rescue, rescue_cut
from tests.tool_calls.calls import tool
from tests.tool_calls.test_text_samples import JSON, SAMPLES, TOOLS

EACH = [(name, text) for name, texts in SAMPLES.items() for text in texts]
# These must stand at the beginning of a line, or fill a reply's last part.
AT_LINE_START = {
    "pythonic",
    "xml_elements",
    "react",
    "functionary",
    "gemma_tool_code",
    "json_fence",
    "bare_json",
}


def calls(found: Rescued) -> list[tuple[str, Any]]:
    return [(call.name, json.loads(call.arguments)) for call in found.calls]


MOMO = ("find_book", {"title": "Momo", "year": 1973})


@pytest.mark.parametrize(("name", "text"), EACH)
def test_a_call_is_read_and_named_after_its_format(name: str, text: str) -> None:
    found = rescue(text, TOOLS)
    assert calls(found) == [MOMO]
    assert [call.format for call in found.calls] == [name]
    assert found.content.strip() in ("", "Thought: look it up.")


@pytest.mark.parametrize(("name", "text"), EACH)
def test_prose_before_a_call_stays_as_it_is(name: str, text: str) -> None:
    before = "I'll look for the book.\n" if name in AT_LINE_START else "I'll look for the book."
    found = rescue(before + text, TOOLS)
    assert calls(found) == [MOMO]
    assert found.content.startswith(before)


@pytest.mark.parametrize(("name", "text"), EACH)
def test_calls_after_reasoning_count_and_calls_in_it_do_not(name: str, text: str) -> None:
    found = rescue(f"<think>\nMaybe this:\n{text}\n</think>\n\n{text}", TOOLS)
    assert calls(found) == [MOMO]
    assert rescue(f"<think>\nMaybe this:\n{text}", TOOLS).calls == ()
    assert rescue(f"Maybe this:\n{text}\n</think>\n\nNo, there is no need.", TOOLS).calls == ()


@pytest.mark.parametrize(("name", "text"), EACH)
def test_two_calls_on_two_lines(name: str, text: str) -> None:
    assert calls(rescue(f"{text}\n{text}", TOOLS)) == [MOMO, MOMO]


@pytest.mark.parametrize(("name", "text"), EACH)
def test_a_tool_that_was_not_offered_stays_text(name: str, text: str) -> None:
    text = text.replace("find_book", "burn_book")
    found = rescue(text, TOOLS)
    assert found.calls == ()
    assert found.content == text


@pytest.mark.parametrize(("name", "text"), EACH)
def test_nothing_is_read_where_no_tools_are_offered(name: str, text: str) -> None:
    assert rescue(text, {}) == Rescued((), text)


@pytest.mark.parametrize(
    "text",
    [
        '<tool_call>{"name": "find_book", "arguments": {"title": "Momo", "year": 1973}}',
        "<tool_call>\n<function=find_book>\n<parameter=title>\nMomo\n</parameter>\n"
        "<parameter=year>\n1973\n</parameter>",
        "<tool_call>find_book\n<arg_key>title</arg_key><arg_value>Momo</arg_value>"
        "<arg_key>year</arg_key><arg_value>1973\n</tool_call>",
        "<tool_call>find_book\n<arg_key>title</arg_key>\nMomo</arg_value>"
        "<arg_key>year</arg_key><arg_value>1973</arg_value>",
        '<tool_calls>[{"name": "find_book", "arguments": {"title": "Momo", "year": 1973}}',
        '[TOOL_CALLS][{"name": "find_book", "arguments": {"title": "Momo", "year": 1973}}',
        "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>find_book<｜tool▁sep｜>"
        '{"title": "Momo", "year": 1973}',
        "<|tool_call_begin|>functions.find_book:3<|tool_call_argument_begin|>"
        '{"title": "Momo", "year": 1973}',
        '<|tool_call>call:find_book{title:<|"|>Momo<|"|>,year:1973}',
        '```json\n{"name": "find_book", "arguments": {"title": "Momo", "year": 1973}}',
        '[Calling tool: find_book({"title": "Momo", "year": 1973})',
        "<function=find_book>\n<parameter=title>Momo\n<parameter=year>1973\n</function>\n</tool_call>",
        '<minimax:tool_call><invoke name="find_book"><parameter name="title">Momo</parameter>'
        '<parameter name="year">1973</parameter>',
    ],
)
def test_a_missing_end_changes_nothing(text: str) -> None:
    assert calls(rescue(text, TOOLS)) == [MOMO]


def test_values_keep_what_looks_like_markup() -> None:
    title = 'a "b" <tool_call>{"name": "list_shelves", "arguments": {}}</tool_call>\n\t{x}] é 🎉'
    body = json.dumps({"name": "find_book", "arguments": {"title": title}}, ensure_ascii=False)
    for text in (
        f"<tool_call>{body}</tool_call>",
        f"[TOOL_CALLS][{body}]",
        f"<|python_tag|>{body}",
        body,
        f"<tool_call>\n<function=find_book>\n<parameter=title>\n{title}\n</parameter>\n</function>",
        f"<tool_call>find_book\n<arg_key>title</arg_key><arg_value>{title}</arg_value></tool_call>",
        f'<｜DSML｜function_calls><｜DSML｜invoke name="find_book"><｜DSML｜parameter name="title" '
        f'string="true">{title}</｜DSML｜parameter></｜DSML｜invoke></｜DSML｜function_calls>',
        f'<|tool_call>call:find_book{{title:<|"|>{title}<|"|>}}<tool_call|>',
        f"[find_book(title={title!r})]",
    ):
        assert calls(rescue(text, TOOLS)) == [("find_book", {"title": title})], text


def test_leading_spaces_of_a_text_value_are_kept_and_one_line_break_around_it_goes() -> None:
    text = (
        "<function=find_book>\n<parameter=title>\n    if x:\n        y\n</parameter>\n</function>"
    )
    assert calls(rescue(text, TOOLS)) == [("find_book", {"title": "    if x:\n        y"})]
    text = "<tool_call>find_book<arg_key>title</arg_key><arg_value>  a\n</arg_value></tool_call>"
    assert calls(rescue(text, TOOLS)) == [("find_book", {"title": "  a\n"})]


@pytest.mark.parametrize("between", ["", "</tool_calls>\n", "<|observation|>\n", "And:\n"])
def test_a_glm_call_that_lacks_its_end_takes_nothing_of_the_next(between: str) -> None:
    one = "<tool_call>find_book\n<arg_key>title</arg_key>\n<arg_value>Momo</arg_value>\n"
    found = rescue(f"{one}{between}{one}</tool_call>", TOOLS)
    assert calls(found) == [("find_book", {"title": "Momo"})] * 2


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
        '[shelve(title="T", tags=["a", "b"], place={"row": 3}, rare=false, price=null)]',
        f"<|tool_call>call:shelve{{{gemma}}}<tool_call|>",
        f'{m3}<tool_call>{m3}<invoke name="shelve">{m3}<title>T{m3}</title>'
        f"{m3}<tags>{tags}{m3}</tags>"
        f"{m3}<place>{m3}<row>3{m3}</row>{m3}</place>{m3}<rare>false{m3}</rare>"
        f"{m3}<price>null{m3}</price>{m3}</invoke>{m3}</tool_call>",
    ):
        assert calls(rescue(text, TOOLS)) == [("shelve", arguments)], text


@pytest.mark.parametrize(
    "text",
    [
        '<tool_call>{"name": "list_shelves"}</tool_call>',
        '<tool_call>{"name": "list_shelves", "arguments": null}</tool_call>',
        '<tool_call>{"name": "list_shelves", "arguments": "{}"}</tool_call>',
        "<tool_call>list_shelves</tool_call>",
        "<tool_call>\n<function=list_shelves>\n</function>\n</tool_call>",
        "[list_shelves()]",
        "[TOOL_CALLS]list_shelves[ARGS]{}",
        "<function_calls>list_shelves()</function_calls>",
        "<|tool_call>call:list_shelves{}<tool_call|>",
        '<function name="list_shelves"></function>',
        '<｜DSML｜function_calls>\n<｜DSML｜invoke name="list_shelves">\n</｜DSML｜invoke>',
        "Action: list_shelves\nAction Input: {}",
        "Action: list_shelves\nAction Input: None",
    ],
)
def test_calls_without_arguments(text: str) -> None:
    assert calls(rescue(text, TOOLS)) == [("list_shelves", {})]


@pytest.mark.parametrize("text", ["{}", "```json\n{}\n```", "<tool_call>{}\n</tool_call>"])
def test_a_bracket_too_many_hides_no_call_and_is_no_text(text: str) -> None:
    found = rescue(text.replace("{}", SAMPLES["bare_json"][0] + "}"), TOOLS)
    assert (calls(found), found.content) == ([MOMO], "")
    found = rescue('<function=find_book>{"title": "Momo", "year": 1973}}</function>', TOOLS)
    assert (calls(found), found.content) == ([MOMO], "")


@pytest.mark.parametrize("half", ["list_shelves[ARGS]", "list_shelves"])
def test_arguments_that_stand_elsewhere_make_no_cut_call_whole(half: str) -> None:
    whole = "[TOOL_CALLS]list_shelves[ARGS]{}"
    assert len(rescue_cut(f"It is `{{}}`.\n{whole}", TOOLS).calls) == 1
    assert len(rescue_cut(f"It is `{{}}`.\n[TOOL_CALLS]{half}", TOOLS).calls) == 0
    assert len(rescue_cut(f"{whole}[TOOL_CALLS]{half}", TOOLS).calls) == 1
    assert len(rescue_cut(f"{whole}{whole}", TOOLS).calls) == 2


def test_code_behind_a_call_keeps_its_fence() -> None:
    code = "\n```python\nprint()\n```\n"
    found = rescue(SAMPLES["bare_json"][0] + code, TOOLS)
    assert (calls(found), found.content) == ([MOMO], code)


def test_keys_without_quotes_are_read_in_a_marked_call() -> None:
    text = '<tool_call>\n{name: "find_book", arguments: {title: "Momo"}}\n</tool_call>'
    (call,) = rescue(text, TOOLS).calls
    assert (call.name, call.arguments) == ("find_book", '{title: "Momo"}')


def test_what_a_tag_calls_text_is_text_where_it_may_be() -> None:
    schema = {"title": {"type": ["string", "integer"]}, "row": {"type": "integer"}, "note": {}}
    values = "".join(
        f'<｜DSML｜parameter name="{key}" string="{said}">5</｜DSML｜parameter>'
        for key, said in (("title", "true"), ("row", "true"), ("note", "true"), ("other", "false"))
    )
    text = f'<｜DSML｜invoke name="shelve">{values}</｜DSML｜invoke>'
    found = rescue(text, {"shelve": {"type": "object", "properties": schema}})
    assert calls(found) == [("shelve", {"title": "5", "row": 5, "note": "5", "other": 5})]


@pytest.mark.parametrize("kind", [{}, {"type": "function"}])
@pytest.mark.parametrize("around", ["{}", "[{}]", '{"tool_calls": [{}]}', "```json\n[{}]\n```"])
def test_a_call_as_openai_answers_with_it(around: str, kind: dict[str, str]) -> None:
    function = {"name": "find_book", "arguments": json.dumps(MOMO[1])}
    call = json.dumps({"id": "call_1", **kind, "function": function})
    assert calls(rescue(around.replace("{}", call), TOOLS)) == [MOMO]


def test_several_calls_in_one_block_and_text_between_blocks() -> None:
    one, two = ('{"name": "list_shelves", "arguments": {}}', SAMPLES["bare_json"][0])
    expected = [("list_shelves", {}), MOMO]
    assert calls(rescue(f"<tool_call>\n{one}\n\n{two}\n</tool_call>", TOOLS)) == expected
    assert calls(rescue(f"{one}; {two}", TOOLS)) == expected
    mixed = f"First <tool_call>{one}</tool_call>then\n<tool_call>{two}</tool_call>\n last."
    found = rescue(mixed, TOOLS)
    assert calls(found) == expected
    assert found.content == "First then\n\n last."
    different = f"<tool_call>{one}</tool_call>\n[TOOL_CALLS][{two}]"
    assert calls(rescue(different, TOOLS)) == expected


def test_a_name_in_another_spelling_becomes_the_tools_name() -> None:
    for name in ("Find_Book", "find-book", "functions.find_book", "findBook"):
        text = f'<tool_call>{{"name": "{name}", "arguments": {{}}}}</tool_call>'
        assert calls(rescue(text, TOOLS)) == [("find_book", {})]
    both: dict[str, dict[str, Any]] = {"find_book": {}, "findBook": {}}
    assert rescue('<tool_call>{"name": "Find-Book"}</tool_call>', both).calls == ()


def test_an_unknown_name_in_a_marked_call_is_reported() -> None:
    known = '<tool_call>{"name": "list_shelves"}</tool_call>'
    unknown = '<tool_call>{"name": "burn_book", "arguments": {}}</tool_call>'
    found = rescue(known + unknown, TOOLS)
    assert calls(found) == [("list_shelves", {})]
    assert found.unknown == ("burn_book",)
    assert found.content == unknown
    assert rescue('{"name": "burn_book", "arguments": {}}', TOOLS).unknown == ()
    assert rescue("[list_shelves(), burn_book()]", TOOLS).unknown == ("burn_book",)


def test_arguments_that_do_not_parse_are_passed_on_raw() -> None:
    for raw in ('{"title": "a "b" c"}', '{"re": "\\d+"}'):
        text = f'<tool_call>\n{{"name": "find_book", "arguments": {raw}}}\n</tool_call>'
        assert [call.arguments for call in rescue(text, TOOLS).calls] == [raw]
        marked = f"[TOOL_CALLS]find_book[ARGS]{raw}"
        assert [call.arguments for call in rescue(marked, TOOLS).calls] == [raw]
    cut = '{"title": "cut of'
    text = f'<tool_call>{{"name": "find_book", "arguments": {cut}'
    assert [call.arguments for call in rescue(text, TOOLS).calls] == [cut]


def test_single_quotes_and_raw_line_breaks_in_json_are_read() -> None:
    text = (
        "<tool_call>{'name': 'find_book', 'arguments': {'title': \"it's\", 'year': 1}}</tool_call>"
    )
    assert calls(rescue(text, TOOLS)) == [("find_book", {"title": "it's", "year": 1})]
    text = '<tool_call>{"name": "find_book", "arguments": {"title": "a\nb"}}</tool_call>'
    assert calls(rescue(text, TOOLS)) == [("find_book", {"title": "a\nb"})]


def test_the_text_of_good_arguments_is_not_rewritten() -> None:
    raw = '{"title":  "x",\n "year": 1E3, "a": 1.50, "b": 12345678901234567890}'
    text = f'<tool_call>{{"name": "find_book", "arguments": {raw}}}</tool_call>'
    assert rescue(text, TOOLS).calls[0].arguments == raw


def test_an_invented_observation_ends_the_actions() -> None:
    text = (
        "Action: find_book\nAction Input: {}\nObservation: found\n"
        "Action: list_shelves\nAction Input: {}"
    )
    assert [call.name for call in rescue(text, TOOLS).calls] == ["find_book"]


def test_plain_text_as_action_input_fits_a_tool_with_one_parameter_only() -> None:
    one = {"ask": {"properties": {"question": {"type": "string"}}}}
    text = "Action: {}\nAction Input: Who wrote Momo?"
    assert calls(rescue(text.format("ask"), one)) == [("ask", {"question": "Who wrote Momo?"})]
    assert rescue(text.format("find_book"), TOOLS).calls == ()


def test_harmony_keeps_the_final_text_and_drops_the_analysis() -> None:
    text = (
        "<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant<|channel|>commentary"
        "<|message|>I will look.<|end|><|start|>assistant<|channel|>commentary "
        "to=functions.list_shelves<|constrain|>json<|message|>{}<|call|>"
        "<|start|>assistant<|channel|>final<|message|>Done.<|return|>"
    )
    found = rescue(text, TOOLS)
    assert calls(found) == [("list_shelves", {})]
    assert found.content == "I will look.\n\nDone."


@pytest.mark.parametrize(
    "thought",
    [
        "<|channel|>analysis<|message|>Perhaps {}\nor not.<|end|><|start|>assistant<|channel|>final"
        "<|message|>Sunny.<|return|>",
        "<|channel|>analysis<|message|>Perhaps {}",
        "<longcat_think>\nPerhaps {}\n</longcat_think>\nHello!",
        "<think:opensource>Perhaps {}</think:opensource>Hello!",
        "<|think|>Perhaps {}<|end|><|content|>Hello!",
    ],
)
@pytest.mark.parametrize("call", [JSON, f"<tool_call>{JSON}</tool_call>"])
def test_a_call_that_is_only_thought_of(thought: str, call: str) -> None:
    text = thought.replace("{}", f"\n{call}\n")
    assert rescue(text, TOOLS) == Rescued((), text)


def test_a_final_text_with_a_call_in_it_after_an_analysis() -> None:
    text = "<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant<|channel|>final<|message|>"
    assert calls(rescue(f"{text}<tool_call>{JSON}</tool_call>", TOOLS)) == [
        ("find_book", json.loads(JSON)["arguments"])
    ]


TITLE = {"find_book": {"properties": {"title": {"type": "string"}, "note": {"type": "string"}}}}
GEMMA_SLIPS = [
    ("{title:'Momo'}", {"title": "Momo"}),
    ("{title:'Momo, or: it's late'}", {"title": "Momo, or: it's late"}),
    ("{title:'Momo'<|\"|>}", {"title": "Momo"}),
    ("{title:'<|\"|>Momo<|\"|>'}", {"title": "Momo"}),
    ('{title:<|"|>Momo}', {"title": "Momo"}),
    ('{title:<|"|>${Momo}}', {"title": "${Momo}"}),
    ('{title:<|"|>Momo', {"title": "Momo"}),
    ("{title:Momo, or: the rest}", {"title": "Momo, or: the rest"}),
    ('{title:a, b,note:<|"|>c<|"|>}', {"title": "a, b", "note": "c"}),
    ('{note:<|"|>c<|"|>,title:x{a},b}', {"note": "c", "title": "x{a},b"}),
    ("{title:'a, b',note:<|\"|>c<|\"|>}", {"title": "a, b", "note": "c"}),
]


@pytest.mark.parametrize(("written", "value"), GEMMA_SLIPS)
def test_gemma_without_its_own_quotes(written: str, value: dict[str, str]) -> None:
    text = f"<|tool_call>call:find_book{written}<tool_call|>"
    assert calls(rescue(text, TITLE)) == [("find_book", value)]


def test_a_gemma_call_without_its_end_and_words_behind_it() -> None:
    found = rescue("<|tool_call>call:find_book{title:Momo}\nDone.", TITLE)
    assert calls(found) == [("find_book", {"title": "Momo"})]
    assert found.content.strip() == "Done."


def test_gemma_texts_end_with_their_own_call() -> None:
    call, end = "<|tool_call>call:find_book", "<tool_call|>"
    for first, value in {
        "{title:Momo": "Momo",
        "{title:'it's {'fine'}, right?'}": "it's {'fine'}, right?",
        '{title:<|"|>d = {}': "d = {}",
        '{title:<|"|>if (x) { y }': "if (x) { y }",
    }.items():
        if "<|" in first:  # its second quote would be the next call's first
            assert calls(rescue(f"{call}{first}{end}", TITLE)) == [("find_book", {"title": value})]
            continue
        text = f"{call}{first}{end}\n{call}{{title:B}}{end}"
        assert calls(rescue(text, TITLE)) == [
            ("find_book", {"title": value}),
            ("find_book", {"title": "B"}),
        ]
    # Whether what follows is a parameter or text can't be told.
    assert rescue(f'{call}{{title:<|"|>Momo,note:c}}{end}', TITLE).calls == ()


def test_a_gemma_text_that_may_go_on_is_no_call() -> None:
    for written in ('{title:<|"|>Momo', "{title:'Momo", "{title:a, b"):
        assert rescue(f"<|tool_call>call:find_book{written}", TITLE).calls == ()


WRITTEN_OTHERWISE = [
    " to=functions.find_book<|channel|>commentary <|constrain|>json<|message|>{}",
    "to=functions.find_book <|constrain|>json<|message|>{}<|call|>",
    "commentary to=functions.find_book json{}",
    "<｜tool▁calls｜>function<｜tool▁sep｜>find_book\n```json\n{}\n```<｜tool▁call▁end｜>",
    "<｜tool▁calls▁begin｜>find_book<｜tool▁sep｜>{}<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
    "<｜tool calls begin｜><｜tool call begin｜>find_book<｜tool sep｜>{}<｜tool call end｜>",
]


@pytest.mark.parametrize(
    "text",
    [
        "gpt-oss writes commentary to=functions.find_book json{}",
        "In the log:\nassistantcommentary to=functions.find_book json{}",
        "Its raw output was:\ncommentary to=functions.find_book json{}",
        "A header begins so:\n\nto=functions.find_book<|channel|>commentary<|message|>{}",
    ],
)
def test_a_header_without_its_tokens_counts_as_a_replys_beginning_only(text: str) -> None:
    text = text.replace("{}", '{"title": "Momo"}')
    assert rescue(text, TOOLS) == Rescued((), text)


@pytest.mark.parametrize("text", WRITTEN_OTHERWISE)
def test_a_marker_that_is_half_there(text: str) -> None:
    found = rescue(text.replace("{}", '{"title": "Momo"}'), TOOLS)
    assert calls(found) == [("find_book", {"title": "Momo"})]


@pytest.mark.parametrize(
    "text",
    [
        f"```json\n<tool_call>\n{JSON}\n</tool_call>\n```",
        f"```json\n<function_call> {JSON} </function_call>\n```",
        f"```xml\n<response>\n {JSON}\n</response>\n```\n",
        f"```xml\n{JSON}\n```",
        "```xml\n<tool_call>\n<function=find_book>\n<parameter=title>\nMomo\n</parameter>\n"
        "<parameter=year>\n1973\n</parameter>\n</function>\n</tool_call>\n```",
    ],
)
def test_a_fence_around_a_tagged_call_is_the_call_if_it_is_all(text: str) -> None:
    found = rescue(text, TOOLS)
    assert calls(found) == [MOMO]
    assert not found.content.strip()


@pytest.mark.parametrize(
    "text",
    [
        f"Look:\n```json\n<tool_call>\n{JSON}\n</tool_call>\n```",
        f"```json\n<tool_call>\n{JSON}\n</tool_call>\n```\nThat is how it is called.",
    ],
)
def test_a_fence_around_a_tagged_call_beside_prose_is_shown(text: str) -> None:
    assert rescue(text, TOOLS) == Rescued((), text)


def test_line_ends_of_windows_around_a_value() -> None:
    text = "<function=find_book>\r\n<parameter=title>\r\nMomo\r\n</parameter>\r\n</function>"
    assert calls(rescue(text, TOOLS)) == [("find_book", {"title": "Momo"})]


def test_quotes_that_belong_to_a_name() -> None:
    tools = {'"find"': {"properties": {'"title"': {"type": "string"}}}}
    text = '<function="find">\n<parameter="title">\n"Momo"\n</parameter>\n</function>'
    assert calls(rescue(text, tools)) == [('"find"', {'"title"': '"Momo"'})]


def test_two_commas_too_many() -> None:
    text = '<tool_call>{"name": "find_book", "arguments": {"title": "Momo",},}</tool_call>'
    (found,) = rescue(text, TOOLS).calls
    assert found.arguments == '{"title": "Momo",}'  # which the check of arguments mends


def test_minicpm_reads_well_formed_values_as_xml() -> None:
    tools = {"find_book": {"properties": {"title": {"type": "string"}}}}
    for written, value in {
        "a &amp; b &#33;": "a & b !",
        "a & b &amp; c": "a & b &amp; c",
        "<![CDATA[a &amp; b]]>": "a &amp; b",
        "a &lt;b&gt; <c>": "a &lt;b&gt; <c>",
    }.items():
        call = f'<param name="title">{written}</param>'
        for text in (call, f"<arguments>{call}</arguments>"):
            found = rescue(f'<function name="find_book">{text}</function>', tools)
            assert calls(found) == [("find_book", {"title": value})]


def test_minicpm_leaves_out_parameters_that_the_tool_does_not_have() -> None:
    text = '<function name="find_book"><param name="title">a</param>'
    text += '<param name="x">1</param></function>'
    assert calls(rescue(text, TOOLS)) == [("find_book", {"title": "a"})]


def test_tokens_that_end_a_message_go_with_the_call() -> None:
    for token in ("<|im_end|>", "<|eot_id|>", "</s>", "\n</tool_call>\n"):
        assert rescue(SAMPLES["bare_json"][0] + token, TOOLS).content.strip() == ""


def test_parameters_named_like_python_keywords() -> None:
    fly = {"fly": {"properties": {"from": {}, "max-stops": {}}}}
    text = "<|tool_call_start|>[fly(from='SFO, to=LAX', max-stops=2)]<|tool_call_end|>"
    assert calls(rescue(text, fly)) == [("fly", {"from": "SFO, to=LAX", "max-stops": 2})]


def test_a_forgotten_bracket_of_a_tag() -> None:
    text = "<tool_call>\n<function=find_book\n<parameter=title\nMomo\n</parameter>\n</function>"
    assert calls(rescue(text, TOOLS)) == [("find_book", {"title": "Momo"})]


def test_a_list_escaped_as_in_a_string() -> None:
    text = '<tool_call>shelve<arg_key>tags</arg_key><arg_value>[\\"a\\"]</arg_value></tool_call>'
    assert calls(rescue(text, TOOLS)) == [("shelve", {"tags": ["a"]})]


def test_a_name_alone_is_a_call_only_as_a_whole_reply_of_a_tool_without_arguments() -> None:
    assert calls(rescue('{"name": "list_shelves"}', TOOLS)) == [("list_shelves", {})]
    assert rescue('{"name": "list_shelves"} is its name.', TOOLS).calls == ()
    assert rescue('{"name": "find_book"}', TOOLS).calls == ()


def test_byte_level_tokens_that_were_not_turned_back_into_text() -> None:
    text = '<functionĠname="find_book"><paramĠname="title">DieĠMomo</param></function>'
    assert calls(rescue(text, TOOLS)) == [("find_book", {"title": "Die Momo"})]


def test_unfenced_tool_code() -> None:
    for text in (
        "tool_code\nfind_book(title='a')",
        "tool_code\nprint(default_api.find_book(title='a'))",
    ):
        assert calls(rescue(text, TOOLS)) == [("find_book", {"title": "a"})]


def test_a_format_that_fails_blocks_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(src: Source, start: int) -> Block | None:
        raise RecursionError

    broken = Format("broken", ("<tool_call>",), fail)
    monkeypatch.setitem(ROWS, "<tool_call>", [broken, *ROWS["<tool_call>"]])
    assert calls(rescue(SAMPLES["hermes_json"][0], TOOLS)) == [MOMO]
    assert rescue("<tool_call>x", TOOLS).content == "<tool_call>x"


PAGE = {"write": {"properties": {"path": {"type": "string"}, "content": {"type": "string"}}}}
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
        "<a>\n  <parameter>1</parameter>\n  <parameter>2</parameter>\n</a>",
        "See:\n<function=f>\n<parameter=query>\nx\n</parameter>\n</function>\nThat is all.",
        '<invoke name="f"><parameter name="query">x</parameter></invoke>',
        "</function>",
    ],
)
def test_a_file_may_hold_the_tags_of_its_own_format(text: str, content: str) -> None:
    found = rescue(text.replace("{}", content), PAGE)
    assert calls(found) == [("write", {"path": "a.md", "content": content})]
    assert found.content == ""


@pytest.mark.parametrize(
    ("format_name", "content"),
    [
        ("qwen3_xml", "re.compile('</parameter>')"),
        ("qwen3_xml", "<parameter=path>z</parameter>"),
        ("invoke_xml", "re.compile('</parameter>')"),
        ("invoke_xml", '<parameter name="path">z</parameter>'),
        ("glm", "re.compile('</arg_value>')"),
        ("glm", "a call ends with </arg_value>\n</tool_call>, as a rule"),
        ("glm", "<tool_call>f\n<arg_key>x</arg_key>\n<arg_value>1</arg_value>\n</tool_call>"),
    ],
)
def test_a_value_whose_end_is_unclear_is_refused(format_name: str, content: str) -> None:
    """Neither half a file nor another file's path is written: the model is asked again."""
    (call,) = rescue(WRITTEN[format_name].replace("{}", content), PAGE).calls
    tools = tool_set([tool("write", {"type": "object", **PAGE["write"]})])
    assert check_call("write", call.arguments, tools).failures


def test_a_pair_that_comes_twice_stays_twice() -> None:
    pairs = "<arg_key>path</arg_key><arg_value>{}</arg_value>"
    text = f"<tool_call>write{pairs.format('a')}{pairs.format('b')}</tool_call>"
    (call,) = rescue(text, PAGE).calls
    assert call.arguments == '{"path": "a", "path": "b"}'
