"""The stage on whole replies: what it refuses, and what it lets pass."""

from __future__ import annotations

from typing import Any

import pytest

from mlx_stack_proxy.engine.verdicts import InvalidToolCall
from mlx_stack_proxy.tool_validation import stage as stage_module
from tests.engine.exchanges import asked_again
from tests.tool_validation.calls import parameters, tool
from tests.tool_validation.tool_replies import (
    FORMATS,
    GOOD,
    TOOLS,
    UNKNOWN,
    Json,
    asked,
    call,
    ids,
    judged,
    message,
)

NAMED = {"type": "function", "function": {"name": "list_files"}}


def allowed(mode: str, *names: str) -> Json:
    tools = [{"type": "function", "function": {"name": name}} for name in names]
    return {"type": "allowed_tools", "allowed_tools": {"mode": mode, "tools": tools}}


@pytest.mark.parametrize(
    ("choice", "reply", "error"),
    [
        ("none", message(call()), "no function may be called now; answer with text"),
        (
            "none",
            message(text="Let me look.", finish="tool_calls"),  # it is lost in the server
            "no function may be called now; answer with text",
        ),
        (
            "none",
            message(call(), finish="length"),
            "no function may be called now; answer with text",
        ),
        (NAMED, message(call()), 'function "list_files" must be called, not "search"'),
        (
            NAMED,
            message(call(), finish="length"),
            'function "list_files" must be called, not "search"',
        ),
        (NAMED, message(text="Done."), 'function "list_files" must be called'),
        ("required", message(text="Done."), "a function must be called, and none was"),
        ("any", message(text="Done."), "a function must be called, and none was"),
        (
            {"type": "tool", "name": "list_files"},
            message(call()),
            'function "list_files" must be called, not "search"',
        ),
        (
            allowed("auto", "list_files", "write_file"),
            message(call()),
            'function "list_files" or "write_file" alone may be called, not "search"',
        ),
        (
            allowed("required", "list_files"),
            message(text="Done."),
            'function "list_files" must be called',
        ),
    ],
    ids=[
        "none",
        "none, and one that is lost",
        "none, and the length cuts behind it",
        "another one",
        "another one, and the length cuts behind it",
        "named, none",
        "required",
        "any",
        "Anthropic's",
        "not allowed",
        "allowed, none",
    ],
)
def test_tool_choice_is_obeyed(choice: Any, reply: Json, error: str) -> None:
    outcome = judged(reply, asked(tool_choice=choice))
    assert [(one.kind, one.error) for one in outcome.failures] == [("tool_choice", error)]


@pytest.mark.parametrize(
    ("choice", "reply"),
    [
        ("none", message(text="Done.")),
        ("auto", message(text="Done.")),
        ("auto", message(call())),
        ("required", message(call())),
        (NAMED, message(call("list_files", "{}"))),
        ({"type": "function", "name": "search"}, message(call())),
        (allowed("auto", "list_files"), message(text="Done.")),
        (allowed("required", "list_files", "search"), message(call())),
        ({"type": "allowed_tools"}, message(call())),
        ({"function": 5}, message(call())),
        (5, message(call())),
        ("required", message(text="I was cu", finish="length")),
    ],
    ids=str,
)
def test_what_tool_choice_allows_passes(choice: Any, reply: Json) -> None:
    outcome = judged(reply, asked(tool_choice=choice))
    assert outcome.verdict is None
    assert outcome.repairs is None


def test_json_that_was_asked_for_is_no_call() -> None:
    said = '{"name": "search", "arguments": {"query": "x"}}'
    schema = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}
    wanted = {"type": "json_schema", "json_schema": {"name": "n", "schema": schema}}
    outcome = judged(message(text=said), asked(response_format=wanted))
    assert outcome.choice["message"] == {"role": "assistant", "content": said}
    outcome = judged(message(text=f"<think>So.</think>{said}"), asked(response_format=wanted))
    assert outcome.choice["message"] == {"role": "assistant", "content": said}
    schema = {**schema, "required": ["name", "age"]}
    wanted = {"type": "json_schema", "json_schema": {"name": "n", "schema": schema}}
    outcome = judged(message(text=said), asked(response_format=wanted))
    assert outcome.calls == [("search", {"query": "x"})]


def test_text_is_not_made_a_call_where_none_may_be() -> None:
    said = '<tool_call>{"name": "search", "arguments": {"query": "x"}}</tool_call>'
    outcome = judged(message(text=said), asked(tool_choice="none"))
    assert outcome.choice["message"]["content"] == said


def test_without_parallel_calls_the_first_is_kept() -> None:
    two = message(call(), call("list_files", "{}", "call_2"))
    outcome = judged(two, asked(parallel_tool_calls=False))
    assert outcome.calls == [("search", {"query": "quokka"})]
    assert outcome.repairs == "parallel_calls"
    assert outcome.incidents == [("tool_call_repaired", ("parallel_calls",))]
    assert judged(two, asked(parallel_tool_calls=True)).repairs is None


def test_a_second_call_with_the_same_id_gets_its_own() -> None:
    outcome = judged(message(call(), call("list_files", "{}")))
    first, second = ids(outcome)
    assert first == "call_1"
    assert second.startswith("call_")
    assert second != first
    assert outcome.repairs == "duplicate_id"


def test_the_same_id_twice_is_a_failure_without_repair() -> None:
    outcome = judged(message(call(), call("list_files", "{}")), repair="off")
    assert outcome.kinds == ["duplicate_id"]
    assert (outcome.failures[0].tool, outcome.failures[0].position) == ("list_files", 1)


@pytest.mark.parametrize("missing", ["", None])
def test_a_missing_id_is_made(missing: Any) -> None:
    outcome = judged(message(call(id=missing)))
    assert ids(outcome)[0].startswith("call_")
    assert outcome.repairs == "missing_id"


def test_a_call_in_tools_ends_as_one() -> None:
    replied = message(call(), finish="function_call")
    assert judged(replied).choice["finish_reason"] == "tool_calls"
    older = judged(replied, asked(legacy=True))
    assert older.choice["finish_reason"] == "function_call"


def test_the_older_form_needs_no_id() -> None:
    outcome = judged(message(call(id="")), asked(legacy=True))
    assert outcome.verdict is None
    assert outcome.repairs is None


KNOWN = '<tool_call>{"name": "list_files", "arguments": {}}</tool_call>'
MANY = [call("list_files", "{}", f"c{place}") for place in range(stage_module.MAX_CALLS + 1)]


@pytest.mark.parametrize(
    ("reply", "tools", "failure"),
    [
        (message(text=None, finish="tool_calls"), TOOLS, ("lost_call", -1)),
        (message(text=None, finish="function_call"), TOOLS, ("lost_call", -1)),
        (message(text="Let me look.", finish="tool_calls"), TOOLS, ("lost_call", -1)),
        (message(call(), call("search", "{}", "b")), TOOLS, ("missing_required", 1)),
        (message(call()), [], ("unknown_tool", 0)),
        (message(call("write_files", '{"path": "a"}')), TOOLS, ("unknown_tool", 0)),
        (message(text=UNKNOWN), TOOLS, ("unknown_tool", -1)),
        (message(text=f"First this.\n{KNOWN}\n{UNKNOWN}"), TOOLS, ("unknown_tool", -1)),
        (message(*MANY), TOOLS, ("too_many_calls", -1)),
    ],
    ids=[
        "lost",
        "lost, in the older form",
        "lost, behind text",
        "one bad call of two",
        "no tools are offered",
        "an unknown tool",
        "an unknown tool in a text",
        "an unknown tool behind a known one",
        "too many",
    ],
)
def test_what_is_refused(reply: Json, tools: list[Json], failure: tuple[str, int]) -> None:
    outcome = judged(reply, asked(tools=tools))
    assert [(one.kind, one.position) for one in outcome.failures] == [failure]
    assert outcome.incidents == [("tool_call_invalid", (failure[0],))]


def test_as_many_calls_as_the_cap_are_let_through() -> None:
    assert judged(message(*MANY[:-1])).verdict is None


@pytest.mark.parametrize("lead", ["Let me see:\n", "Hermes models write calls like "])
def test_an_unknown_tool_in_a_marked_format_beside_prose_is_doubted(lead: str) -> None:
    outcome = judged(message(text=f"{lead}{UNKNOWN}"))
    assert isinstance(outcome.verdict, InvalidToolCall)
    assert outcome.verdict.doubt
    assert [(one.kind, one.tool) for one in outcome.failures] == [("unread_call", "delete_all")]


BEHIND_PROSE = f'So: {{"name": "search", "arguments": {GOOD}}}'
UNREAD = "<tool_call>\nsearch: quokka\n</tool_call>"
CLOSED = "search: quokka\n</tool_call>"
UNREADABLE = '```json\n{"name": "search", "arguments": {"query": "quokka", "a": ["b", "c": 1}}\n```'
IN_A_FENCE = f"```\n[TOOL_CALLS]search[ARGS]{GOOD}\n```"
OF_NO_TOOL = '```json\n{"name": "find", "arguments": {"query": "quokka"}}\n```'


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        (UNREAD, "lost_call"),
        (UNREADABLE, "invalid_json"),
        (UNREADABLE.removesuffix("\n```") + "\n</tool_call>", "invalid_json"),
        (UNREADABLE.removeprefix("```json\n").removesuffix("\n```"), "invalid_json"),
    ],
)
def test_a_reply_that_is_nothing_but_a_broken_call_is_wrong(text: str, kind: str) -> None:
    outcome = judged(message(text=text))
    assert outcome.kinds == [kind]
    assert isinstance(outcome.verdict, InvalidToolCall)
    assert not outcome.verdict.doubt


@pytest.mark.parametrize("text", [BEHIND_PROSE, CLOSED, OF_NO_TOOL, IN_A_FENCE])
def test_a_text_that_may_hold_a_call_is_doubted(text: str) -> None:
    outcome = judged(message(text=text))
    assert outcome.kinds == ["unread_call"]
    assert isinstance(outcome.verdict, InvalidToolCall)
    assert outcome.verdict.doubt
    assert outcome.verdict.ask_next
    assert outcome.incidents == [("tool_call_invalid", ("unread_call",))]


@pytest.mark.parametrize("reply", [message(call()), message(text="It is a small marsupial.")])
def test_what_the_next_tier_says_instead_goes_out_be_it_a_call_or_a_text(reply: Json) -> None:
    again = asked_again(asked(), judged(message(text=OF_NO_TOOL)).verdict)
    assert judged(reply, again).verdict is None


@pytest.mark.parametrize("text", [BEHIND_PROSE, OF_NO_TOOL])
def test_a_text_that_may_hold_a_call_is_what_it_is_elsewhere(text: str) -> None:
    said = message(text=text)
    one_more = message(text="Nothing.")["choices"][0]
    for reply, body, rules in (
        (message(text=text, finish="length"), {}, {}),
        ({**said, "choices": [*said["choices"], {**one_more, "index": 1}]}, {}, {}),
        (message(call(), text=text), {}, {}),
        (said, {"tools": []}, {}),
        (said, {"tool_choice": "none"}, {}),
        (said, {"response_format": {"type": "text"}}, {}),
        (said, {}, {"rescue_text_calls": False}),
    ):
        assert judged(reply, asked(**body), **rules).verdict is None


def test_marked_calls_with_prose_between_them_are_all_calls() -> None:
    one = '<|tool_call>call:search{query:<|"|>quokka<|"|>}<tool_call|>'
    two = "<|tool_call>call:list_files{}<tool_call|>"
    outcome = judged(message(text=f"First this.\n{one}\nThen that:\n{two}"))
    assert outcome.calls == [("search", {"query": "quokka"}), ("list_files", {})]
    assert outcome.choice["message"]["content"] == "First this.\n\nThen that:\n"


EMPTY = message(call("write_file", '{"path": "a.txt", "content": ""}'))


def test_a_required_text_that_is_empty_is_doubted_and_refused_never() -> None:
    outcome = judged(EMPTY)
    assert isinstance(outcome.verdict, InvalidToolCall)
    assert (outcome.kinds, outcome.verdict.doubt) == (["empty_value"], True)
    assert not outcome.verdict.ask_next
    again = asked_again(asked(), outcome.verdict)
    assert judged(EMPTY, again).verdict is None
    said = EMPTY["choices"][0]["message"]
    before = [{"role": "user", "content": "Empty a.txt and b.txt."}, said]
    assert judged(EMPTY, asked(messages=before)).verdict is None
    assert judged(EMPTY, validate_plausibility=False).verdict is None


GET = tool("get_order", parameters("order_id", order_id="string"))
LOOK_UP = [{"role": "user", "content": "Look up 8874449."}]
SLIP = message(call("get_order", '{"order_id": "887449"}'))


def test_an_id_that_is_copied_with_a_slip_is_doubted_and_the_next_tier_asked() -> None:
    whole = asked(tools=[*TOOLS, GET], messages=LOOK_UP)
    outcome = judged(SLIP, whole)
    assert isinstance(outcome.verdict, InvalidToolCall)
    assert outcome.verdict.doubt
    assert outcome.verdict.ask_next
    assert [(one.kind, one.error) for one in outcome.failures] == [
        (
            "miscopied_id",
            'field "order_id" in function "get_order" is "887449", which stands nowhere in the '
            'conversation, where "8874449" does',
        )
    ]
    assert outcome.incidents == [("tool_call_invalid", ("miscopied_id",))]


def test_an_id_is_not_doubted_elsewhere() -> None:
    tools = [*TOOLS, GET]
    right = message(call("get_order", '{"order_id": "8874449"}'))
    first = SLIP["choices"][0]
    for reply, rules in (
        (right, {}),
        (SLIP, {"validate_plausibility": False}),
        ({**SLIP, "choices": [first, {**first, "index": 1}]}, {}),
    ):
        outcome = judged(reply, asked(tools=tools, messages=LOOK_UP), **rules)
        assert outcome.verdict is None
    # What is surely wrong comes first, and is no doubt.
    both = message(call("get_order", '{"order_id": "887449"}'), call("search", "{}", "call_2"))
    outcome = judged(both, asked(tools=tools, messages=LOOK_UP))
    assert outcome.kinds == ["missing_required"]
    assert isinstance(outcome.verdict, InvalidToolCall)
    assert not outcome.verdict.doubt


# A length cut


def cut_off(*calls: Json, text: str | None = None) -> Json:
    return message(*calls, text=text, finish="length")


@pytest.mark.parametrize(
    "half", ["", "{", '{"path": "a.py", "content": "x = ', '{"path": "a.py", "content": "x = {}']
)
def test_half_a_call_at_a_length_cut_is_dropped(half: str) -> None:
    outcome = judged(cut_off(call(), call("write_file", half, "call_2")))
    assert outcome.calls == [("search", {"query": "quokka"})]
    assert outcome.choice["finish_reason"] == "length"
    assert outcome.repairs is None


def test_a_length_cut_may_leave_nothing_but_the_reason() -> None:
    outcome = judged(cut_off(call("write_file", '{"path"')))
    assert outcome.calls == []
    assert outcome.choice["finish_reason"] == "length"


def test_a_whole_call_before_a_length_cut_is_checked() -> None:
    assert judged(cut_off(call())).calls == [("search", {"query": "quokka"})]
    assert judged(cut_off(call("search", "{}"))).kinds == ["missing_required"]


@pytest.mark.parametrize(
    "half",
    [
        "<function=write_file><parameter=path>a.py</parameter><parameter=content>x = ",
        "<function=write_file><parameter=path>a.py</parameter>",
        '<tool_call>{"name": "write_file", "arguments": {"path": "a.py", "content": "x',
        '[TOOL_CALLS]write_file[ARGS]{"path": "a.py", "cont',
        "<|tool_call_begin|>functions.list_files:0<|tool_call_argument_begin|>",
    ],
)
def test_half_a_call_written_as_text_is_never_run(half: str) -> None:
    outcome = judged(cut_off(text=f"I write it.\n\n{half}"))
    assert outcome.calls == []
    assert outcome.choice["message"]["content"].strip() == "I write it."
    assert outcome.choice["finish_reason"] == "length"


def test_a_whole_call_written_as_text_before_a_length_cut() -> None:
    whole = '<tool_call>{"name": "search", "arguments": {"query": "x"}}</tool_call>'
    outcome = judged(cut_off(text=f'{whole}\n<tool_call>{{"name": "wri'))
    assert outcome.calls == [("search", {"query": "x"})]
    assert not (outcome.choice["message"]["content"] or "").strip()


# response_format


@pytest.mark.parametrize("wanted", FORMATS, ids=["object", "schema"])
@pytest.mark.parametrize("tools", [[], TOOLS], ids=["alone", "with tools"])
def test_a_reply_under_response_format(wanted: Json, tools: list[Json]) -> None:
    whole = asked(tools=tools, response_format=wanted)
    assert judged(message(text="Certainly!"), whole).failures[0].tool == "response_format"
    whole = asked(tools=tools, response_format=wanted)
    mended = judged(message(text='Certainly!\n```json\n{"age": 7}\n```'), whole)
    assert mended.choice["message"]["content"] == '{"age": 7}'
    assert mended.repairs
    whole = asked(tools=tools, response_format=wanted)
    assert judged(message(text=' {"age":7 }'), whole).repairs is None


def test_a_call_is_a_good_reply_under_response_format() -> None:
    outcome = judged(message(call(), text="Let me look."), asked(response_format=FORMATS[0]))
    assert outcome.verdict is None


def test_a_cut_reply_is_no_failure_of_its_format() -> None:
    cut = message(text='{"age": ', finish="length")
    assert judged(cut, asked(tools=[], response_format=FORMATS[0])).verdict is None


@pytest.mark.parametrize(
    ("reply", "name"),
    [
        (message(call(arguments='{"query": "quokka",}')), "trailing_comma"),
        (message(text='<tool_call>{"name": "search", "arguments": {"query": "a"}}'), "hermes_json"),
        (EMPTY, "empty_value"),
        (message(text=BEHIND_PROSE), "unread_call"),
    ],
)
def test_a_repair_a_format_and_a_doubt_can_be_left_out(reply: Json, name: str) -> None:
    came = judged(reply).incidents
    assert name in [label for _, labels in came for label in labels]
    left = judged(reply, off=frozenset({name})).incidents
    assert name not in [label for _, labels in left for label in labels]
