"""Each format alone, with prose around it, twice, in reasoning, in a fence, without its end."""

from __future__ import annotations

import pytest

from mlx_stack_proxy.tool_validation.formats.base import TURN_END, Block, Format, Source, after
from mlx_stack_proxy.tool_validation.formats.table import ROWS
from mlx_stack_proxy.tool_validation.text_calls import Rescued, rescue, rescue_cut
from mlx_stack_proxy.tool_validation.tools import NO_TOOLS, ToolSet
from tests.tool_validation.calls import check
from tests.tool_validation.test_text_samples import (
    ARGUMENTS,
    EACH,
    JSON,
    MARKED,
    MOMO,
    PYTHON,
    SAMPLES,
    TOOLS,
    calls,
)

# These must stand at the beginning of a line.
AT_LINE_START = {"xml_elements", "react", "functionary", "gemma_tool_code", "json_fence"}


# What stands behind these belongs to them: a message, an observation, the reply's last lines.
AS_A_WHOLE = {"harmony", "react", "gemma4"}


@pytest.mark.parametrize(("name", "text"), EACH)
def test_a_call_is_read_and_named_after_its_format(name: str, text: str) -> None:
    found = rescue(text, TOOLS)
    assert calls(found) == [MOMO]
    assert [call.format for call in found.calls] == [name]
    assert found.content.strip() in ("", "Thought: look it up.")


@pytest.mark.parametrize(("name", "text"), MARKED)
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


@pytest.mark.parametrize(("name", "text"), MARKED)
@pytest.mark.parametrize("between", ["\n", "\nand then:\n"])
def test_two_calls_with_or_without_prose_between_them(name: str, text: str, between: str) -> None:
    if name in AS_A_WHOLE:
        return
    assert calls(rescue(f"{text}{between}{text}", TOOLS)) == [MOMO, MOMO]


@pytest.mark.parametrize(("name", "text"), [one for one in EACH if one not in MARKED])
def test_without_a_mark_a_call_is_the_whole_reply_or_text(name: str, text: str) -> None:
    assert calls(rescue(f"<think>Hm.</think>\n\n{text}\n", TOOLS)) == [MOMO]
    for whole in (f"I see.\n{text}", f"{text}\nDone."):
        assert rescue(whole, TOOLS) == Rescued((), whole)


@pytest.mark.parametrize(("name", "text"), EACH)
def test_a_tool_that_was_not_offered_stays_text(name: str, text: str) -> None:
    text = text.replace("find_book", "burn_book")
    found = rescue(text, TOOLS)
    assert found.calls == ()
    assert text.startswith(found.content)
    assert after(TURN_END, text, len(found.content)) == len(text)


@pytest.mark.parametrize(("name", "text"), EACH)
def test_nothing_is_read_where_no_tools_are_offered(name: str, text: str) -> None:
    for found in (rescue(text, NO_TOOLS), rescue_cut(text, NO_TOOLS)):
        assert (found.calls, found.unknown) == ((), ())
        assert text.startswith(found.content)
        assert after(TURN_END, text, len(found.content)) == len(text)


@pytest.mark.parametrize(
    "text",
    [
        '<tool_call>{"name": "find_book", "arguments": {"title": "Momo", "year": 1973}}',
        "<tool_call>\n<function=find_book>\n<parameter=title>\nMomo\n</parameter>\n"
        "<parameter=year>\n1973\n</parameter>",
        "<tool_call>find_book\n<arg_key>title</arg_key><arg_value>Momo</arg_value>"
        "<arg_key>year</arg_key><arg_value>1973\n</tool_call>",
        '[TOOL_CALLS][{"name": "find_book", "arguments": {"title": "Momo", "year": 1973}}',
        "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>find_book<｜tool▁sep｜>"
        '{"title": "Momo", "year": 1973}',
        '<|tool_call>call:find_book{title:<|"|>Momo<|"|>,year:1973}',
        '```json\n{"name": "find_book", "arguments": {"title": "Momo", "year": 1973}}',
        '[Calling tool: find_book({"title": "Momo", "year": 1973})',
        "<function=find_book>\n<parameter=title>Momo\n<parameter=year>1973\n</function>\n</tool_call>",
        # The bracket of a tag is missing, too.
        "<tool_call>\n<function=find_book\n<parameter=title\nMomo\n</parameter>\n"
        "<parameter=year\n1973\n</parameter>\n</function>",
    ],
)
def test_a_missing_end_changes_nothing(text: str) -> None:
    assert calls(rescue(text, TOOLS)) == [MOMO]


@pytest.mark.parametrize(
    "text",
    [
        "<tool_call>\n<function=find_book>\n<parameter=title>\nMo",
        '<minimax:tool_call><invoke name="find_book"><parameter name="title">Mo',
        "<tool_call>find_book\n<arg_key>title</arg_key><arg_value>Mo",
        ']<]minimax[>[<tool_call>]<]minimax[>[<invoke name="find_book">]<]minimax[>[<title>Mo',
        '<|open|>tools<|sep|><|open|>call tool="find_book"<|sep|>'
        '<|open|>argument key="title" type="string"<|sep|>Mo',
        # One more parameter had begun.
        "<tool_call>\n<function=find_book>\n<parameter=title>\nMomo\n</parameter>\n<parameter=ye",
        ']<]minimax[>[<tool_call>]<]minimax[>[<invoke name="find_book">'
        "]<]minimax[>[<title>Momo]<]minimax[>[</title>]<]minimax[>[<ye",
        '<|open|>tools<|sep|><|open|>call tool="find_book"<|sep|>'
        '<|open|>argument key="title" type="string"<|sep|>Momo<|close|>argument<|sep|>'
        '<|open|>argument key="ye',
        # JSON in a value is not the arguments.
        f"<tool_call>find_book\n<arg_key>title</arg_key><arg_value>{ARGUMENTS}",
    ],
)
def test_a_value_that_nothing_closes_is_never_delivered(text: str) -> None:
    (call,) = rescue(text, TOOLS).calls
    assert call.name == "find_book"
    assert check(call.arguments, TOOLS, call.name).failures
    assert rescue_cut(text, TOOLS).calls == ()


@pytest.mark.parametrize(
    "text",
    [
        '<tool_call>{"name": "list_shelves"}</tool_call>',
        '<tool_call>{"name": "list_shelves", "arguments": null}</tool_call>',
        "<tool_call>list_shelves</tool_call>",
        "<tool_call>\n<function=list_shelves>\n</function>\n</tool_call>",
        "[list_shelves()]",
        "[TOOL_CALLS]list_shelves[ARGS]{}",
        "<|tool_call>call:list_shelves{}<tool_call|>",
        '<｜DSML｜function_calls>\n<｜DSML｜invoke name="list_shelves">\n</｜DSML｜invoke>',
        "Action: list_shelves\nAction Input: {}",
    ],
)
def test_calls_without_arguments(text: str) -> None:
    assert calls(rescue(text, TOOLS)) == [("list_shelves", {})]


@pytest.mark.parametrize(
    "text",
    [
        f"{JSON}}}",
        f"<tool_call>{JSON}}}\n</tool_call>",
        f"<function=find_book>{ARGUMENTS}}}</function>",
    ],
)
def test_a_bracket_too_many_hides_no_call_and_is_no_text(text: str) -> None:
    found = rescue(text, TOOLS)
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
    found = rescue(SAMPLES["hermes_json"][0] + code, TOOLS)
    assert (calls(found), found.content) == ([MOMO], code)


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
    both = ToolSet({"find_book": {}, "findBook": {}})
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


@pytest.mark.parametrize(
    ("thought", "said"),
    [
        ("<|channel|>analysis<|message|>Perhaps {}\nor not.<|end|><|start|>assistant"
         "<|channel|>final<|message|>Sunny.<|return|>", "Sunny."),
        ("<|channel|>analysis<|message|>Perhaps {}", ""),
        ("<think:opensource>Perhaps {}</think:opensource>Hello!", None),
        ("<|think|>Perhaps {}<|end|><|content|>Hello!", None),
    ],
)  # fmt: skip
@pytest.mark.parametrize("call", [JSON, f"<tool_call>{JSON}</tool_call>"])
def test_a_call_that_is_only_thought_of(thought: str, said: str | None, call: str) -> None:
    text = thought.replace("{}", f"\n{call}\n")
    assert rescue(text, TOOLS) == Rescued((), text if said is None else said)


def test_tokens_that_end_a_message_go_with_the_call() -> None:
    for token in ("<|im_end|>", "<|of_next_year|>", "</s>", "\n</tool_call>\n", "[|end|]"):
        for name in ("bare_json", "hermes_json", "xml_elements"):
            assert rescue(SAMPLES[name][0] + token, TOOLS).content.strip() == ""


def test_an_echo_of_a_call_without_its_first_mark_is_no_call() -> None:
    call = f"[{PYTHON}]<|tool_call_end|>"
    assert calls(rescue(f"<|tool_call_start|>{call}{call}", TOOLS)) == [MOMO]


def test_a_token_of_another_call_does_not_go_with_a_call() -> None:
    text = f"<tool_call>{JSON}</tool_call><|im_end|><|tool_call|>[{JSON}]"
    assert len(rescue(text, TOOLS).calls) == 2


def test_a_format_that_fails_blocks_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(src: Source, start: int) -> Block | None:
        raise RecursionError

    broken = Format("broken", ("<tool_call>",), fail)
    monkeypatch.setitem(ROWS, "<tool_call>", [broken, *ROWS["<tool_call>"]])
    assert calls(rescue(SAMPLES["hermes_json"][0], TOOLS)) == [MOMO]
    assert rescue("<tool_call>x", TOOLS).content == "<tool_call>x"
