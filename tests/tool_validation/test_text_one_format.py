"""What is one format's own: its slips, its tokens left out, its idea of a text."""

from __future__ import annotations

import json

import pytest

from mlx_stack_proxy.tool_validation.check import check_call
from mlx_stack_proxy.tool_validation.text_calls import Holdback, Rescued, rescue
from mlx_stack_proxy.tool_validation.tools import ToolSet
from tests.tool_validation.test_text_samples import JSON, MOMO, TOOLS, calls, evenly


@pytest.mark.parametrize("between", ["", "</tool_calls>\n", "<|observation|>\n", "And:\n"])
def test_a_glm_call_that_lacks_its_end_takes_nothing_of_the_next(between: str) -> None:
    one = "<tool_call>find_book\n<arg_key>title</arg_key>\n<arg_value>Momo</arg_value>\n"
    found = rescue(f"{one}{between}{one}</tool_call>", TOOLS)
    assert calls(found) == [("find_book", {"title": "Momo"})] * 2


@pytest.mark.parametrize("kind", [{}, {"type": "function"}])
@pytest.mark.parametrize("around", ["{}", "[{}]", '{"tool_calls": [{}]}', "```json\n[{}]\n```"])
def test_a_call_as_openai_answers_with_it(around: str, kind: dict[str, str]) -> None:
    function = {"name": "find_book", "arguments": json.dumps(MOMO[1])}
    call = json.dumps({"id": "call_1", **kind, "function": function})
    assert calls(rescue(around.replace("{}", call), TOOLS)) == [MOMO]


def test_an_invented_observation_ends_the_actions() -> None:
    text = (
        "Action: find_book\nAction Input: {}\nObservation: found\n"
        "Action: list_shelves\nAction Input: {}"
    )
    assert [call.name for call in rescue(text, TOOLS).calls] == ["find_book"]


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
    ("text", "said"),
    [
        ("<|channel|>final<|message|>Done.<|return|>", "Done."),
        ("<|start|>assistant<|channel|>final<|message|>A `<|call|>`\nis.", "A `<|call|>`\nis."),
        ("<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant<|channel|>commentary<|message|>"
         "I look.<|end|><|start|>assistant<|channel|>final<|message|>Done.", "I look.\n\nDone."),
        ("<|channel|>analysis<|message|>Only that.<|end|>", ""),
    ],
)  # fmt: skip
def test_harmony_without_a_call_is_its_texts(text: str, said: str) -> None:
    assert evenly(text) == Rescued((), said)


@pytest.mark.parametrize(
    "text",
    [
        "assistantcommentary to=functions.list_shelves json{}",
        "analysisWe list them.assistantcommentary to=functions.list_shelves code{}",
        "<|tool_call_begin|>0<|tool_call_argument_begin|>{}<|tool_call_end|>",
    ],
)
def test_a_call_without_all_of_its_tokens(text: str) -> None:
    one = ToolSet({"list_shelves": {"properties": {"at": {}}}, "f": {"required": ["x"]}})
    text = text.replace("{}", '{"at": 1}')
    assert calls(rescue(text, one)) == [("list_shelves", {"at": 1})]


def test_a_commentary_that_is_an_object_is_a_call_without_a_name() -> None:
    text = '<|channel|>commentary<|message|>{"title": "Momo", "year": 1973}<|end|>'
    assert calls(rescue(text, TOOLS)) == [MOMO]
    assert rescue(text.replace("year", "age"), TOOLS).unknown == ("commentary",)


@pytest.mark.parametrize(
    "end",
    ["<|im_end|>", "<turn|>", "\n</s>", "<|eot_id|><|end_of_text|>\n", "<|of_next_year|>",
     "<｜a▁new▁one｜>", "[|endofturn|]", "<|im_end|>\n<|endoftext|>"],
)  # fmt: skip
def test_tokens_that_end_a_turn_end_no_text(end: str) -> None:
    text = "It has three lines."
    assert rescue(text + end, TOOLS).content.rstrip() == text
    holdback = Holdback(TOOLS)
    flowed = "".join(map(holdback.feed, text + end))
    assert flowed.rstrip() == text and not holdback.finish().content


@pytest.mark.parametrize(
    "text",
    [
        "The token is <|im_end|>",
        "It ends in `</s>`",
        "<|im_end|> ends it.",
        "A</s> B <turn|>",
        "Its tokens:\n<|system|>\n<|user|>\n<|assistant|>",
        "Three of them\n<|a|>\n<|b|>\n<|c|>\n",
        "It is:\n\n<|im_end|>",
        "if a <|x|> b [|y|] c",
    ],
)
def test_tokens_that_a_text_speaks_of_stay(text: str) -> None:
    assert evenly(text).content == text


@pytest.mark.parametrize("call", [f"<tool_call>{JSON}</tool_call>", f"{JSON}<|return|>"])
def test_a_final_text_with_a_call_in_it_after_an_analysis(call: str) -> None:
    text = "<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant<|channel|>final<|message|>"
    assert calls(rescue(text + call, TOOLS)) == [MOMO]


TITLE = ToolSet(
    {"find_book": {"properties": {"title": {"type": "string"}, "note": {"type": "string"}}}}
)


@pytest.mark.parametrize("written", ["{title:'Momo'}", "{'title':'Momo'}", '{"title":"Momo",}'])
def test_gemma_with_other_quotes_is_read_leniently(written: str) -> None:
    (call,) = rescue(f"<|tool_call>call:find_book{written}<tool_call|>", TITLE).calls
    assert check_call(call.name, call.arguments, TITLE).arguments == '{"title": "Momo"}'


@pytest.mark.parametrize(
    "written", ['{title:<|"|>Momo,note:c}', '{title:<|"|>Momo', "{title:'Momo", "{title:a, b"]
)
def test_a_gemma_text_whose_end_is_unclear_is_refused(written: str) -> None:
    (call,) = rescue(f"<|tool_call>call:find_book{written}<tool_call|>", TITLE).calls
    assert check_call(call.name, call.arguments, TITLE).failures


@pytest.mark.parametrize(
    "text",
    [
        "gpt-oss writes commentary to=functions.find_book json{}",
        "In the log:\nassistantcommentary to=functions.find_book json{}",
    ],
)
def test_a_header_without_its_tokens_counts_as_a_lines_beginning_only(text: str) -> None:
    text = text.replace("{}", '{"title": "Momo"}')
    assert rescue(text, TOOLS) == Rescued((), text)


@pytest.mark.parametrize(
    "text",
    [
        # Half of a marker is there.
        " to=functions.find_book<|channel|>commentary <|constrain|>json<|message|>{}",
        "to=functions.find_book <|constrain|>json<|message|>{}<|call|>",
        "<｜tool▁calls｜>function<｜tool▁sep｜>find_book\n```json\n{}\n```<｜tool▁call▁end｜>",
        "<｜tool▁calls▁begin｜>find_book<｜tool▁sep｜>{}<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
        "<｜tool calls begin｜><｜tool call begin｜>find_book<｜tool sep｜>{}<｜tool call end｜>",
        # The tool does not have all parameters.
        '<function name="find_book"><param name="title">Momo</param><param name="x">1</param>'
        "</function>",
        # The code stands in no fence.
        "tool_code\nprint(default_api.find_book(title='Momo'))",
    ],
)
def test_a_call_that_is_written_otherwise(text: str) -> None:
    found = rescue(text.replace("{}", '{"title": "Momo"}'), TOOLS)
    assert calls(found) == [("find_book", {"title": "Momo"})]


def test_minicpm_reads_well_formed_values_as_xml() -> None:
    for written, value in {
        "a &amp; b &#33;": "a & b !",
        "a & b &amp; c": "a & b &amp; c",
        "<![CDATA[a &amp; b]]>": "a &amp; b",
        "a &lt;b&gt; <c>": "a &lt;b&gt; <c>",
        "    return 1\n": "    return 1\n",
        "\nimport os\n": "import os",
    }.items():
        call = f'<param name="title">{written}</param>'
        for text in (call, f"<arguments>{call}</arguments>"):
            found = rescue(f'<function name="find_book">{text}</function>', TITLE)
            assert calls(found) == [("find_book", {"title": value})]


def test_minicpm_with_the_other_formats_tags_loses_nothing() -> None:
    text = '<function name="find_book"><parameter name="x">a &amp; b</parameter></function>'
    assert calls(rescue(text, TITLE)) == [("find_book", {"x": "a &amp; b"})]


SHELL = {"properties": {"command": {"type": "string"}}, "required": ["command"]}
FILES = {"properties": {"path": {"type": "string"}, "text": {"type": "string"}}}
WORK = ToolSet({"shell": SHELL, "save": FILES, "now": {"properties": {}}})


def test_cwm_writes_the_text_of_the_only_parameter() -> None:
    text = "<tool: function>\nshell ls -la | grep 'a b'\n</tool>"
    assert calls(rescue(text, WORK)) == [("shell", {"command": "ls -la | grep 'a b'"})]
    assert rescue("<tool: function>\nsave a b\n</tool>", WORK).calls == ()


@pytest.mark.parametrize(
    "text",
    [
        '<｜DSML｜function_calls>\n<｜DSML｜invoke name="now"/>\n</｜DSML｜function_calls>',
        '<invoke name="now" />',
    ],
)
def test_an_element_that_closes_itself_is_a_call_without_arguments(text: str) -> None:
    found = rescue(f"Wait.{text}", WORK)
    assert calls(found) == [("now", {})]
    assert found.content == "Wait."


def test_a_key_without_a_value_is_not_given_and_leaves_the_next_call_alone() -> None:
    """GLM and Hunyuan; with the closing tag, or the next key, right behind the key."""
    lone = "<tool_call>save<arg_key>path</arg_key></tool_call>"
    whole = "<tool_call>save<arg_key>text</arg_key><arg_value>x</arg_value></tool_call>"
    assert calls(rescue(lone + whole, WORK)) == [("save", {}), ("save", {"text": "x"})]
    first = "<tool_call>save<arg_key>path</arg_key>\n<arg_key>text</arg_key><arg_value>x"
    assert calls(rescue(first + "</arg_value></tool_call>", WORK)) == [("save", {"text": "x"})]


@pytest.mark.parametrize(
    "around",
    [
        "<minimax:tool_call><invoke name={!r}>{}</invoke></minimax:tool_call>",
        "<seed:tool_call><function={}>{}</function></seed:tool_call>",
    ],
)
def test_line_breaks_stay_where_values_are_written_directly(around: str) -> None:
    value = "def f():\n    return 1\n"
    tag = '<parameter name="text">' if "invoke" in around else "<parameter=text>"
    text = around.format("save", f"{tag}{value}</parameter>").replace("'save'", '"save"')
    assert calls(rescue(text, WORK)) == [("save", {"text": value})]


def test_a_value_loses_the_indentation_of_its_closing_tag() -> None:
    text = (
        '<invoke name="save">\n  <parameter name="text">\n  if x:\n      y()\n\n  z()\n'
        "  </parameter>\n</invoke>"
    )
    assert calls(rescue(text, WORK)) == [("save", {"text": "if x:\n    y()\n\nz()"})]


def test_a_tag_that_says_json_gives_the_string_without_its_quotes() -> None:
    text = '<｜DSML｜invoke name="save"><｜DSML｜parameter name="text" string="false">"a \\"b\\""'
    text += "</｜DSML｜parameter></｜DSML｜invoke>"
    assert calls(rescue(text, WORK)) == [("save", {"text": 'a "b"'})]


WRITTEN = '<atem:function_calls>\n<atem:invoke name="now">\n</atem:invoke>\n</atem:function_calls>'


def test_a_call_shown_within_a_message_to_the_user_is_text() -> None:
    assert calls(rescue(f" to=user<|message|>{WRITTEN}<|eot|>", WORK)) == [("now", {})]
    shown = f" to=user<|message|>{WRITTEN}\nThat is how it looks."
    assert rescue(shown, WORK) == Rescued((), shown)


@pytest.mark.parametrize(
    ("text", "call"),
    [
        ('save(path="a", text="b")', ("save", {"path": "a", "text": "b"})),
        ("now()", ("now", {})),
        ('call:save{"path": "a"}', ("save", {"path": "a"})),
        ("call:shell{command:ls}", ("shell", {"command": "ls"})),
        ('save\n{"path": "a"}', ("save", {"path": "a"})),
    ],
)
def test_a_whole_reply_that_is_only_a_call(text: str, call: tuple[str, object]) -> None:
    assert calls(rescue(text, WORK)) == [call]
    for other in (f"{text} saves it.", f"I call {text}", text.replace("a", "a\n", 1) + "!"):
        assert rescue(other, WORK).calls == ()


def test_functionary_leaves_out_the_first_mark() -> None:
    text = 'save\n{"path": "a"}>>>shell\n{"command": "ls"}'
    assert calls(rescue(text, WORK)) == [("save", {"path": "a"}), ("shell", {"command": "ls"})]


@pytest.mark.parametrize(
    "text", ["shell()", 'save(size="b")', "save(open('x'))", 'saves(path="a")', "now (or later)"]
)
def test_code_that_no_tool_takes_is_no_call(text: str) -> None:
    assert rescue(text, WORK).calls == ()


def test_prose_that_begins_with_a_tools_name_flows() -> None:
    assert Holdback(WORK).feed("Nobody") == "Nobody"
    holdback = Holdback(WORK)
    flowed = [holdback.feed(piece) for piece in ("no", "w", " or", " never")]
    assert flowed == ["", "", "now or", " never"]


@pytest.mark.parametrize(
    "text",
    [
        '```tool_call\nfind_book(title="Momo", year=1973)\n',
        '<|tool_call>call :find_book{title:<|"|>Momo<|"|>,year:1973}<tool_call|>',
    ],
)
def test_an_open_fence_and_blanks_before_a_colon_make_no_difference(text: str) -> None:
    assert calls(rescue(text, TOOLS)) == [MOMO]
