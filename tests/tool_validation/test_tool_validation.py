"""The stage on whole replies: what it refuses, and what it lets pass."""

from __future__ import annotations

from typing import Any

import pytest

from mlx_stack_proxy.engine.verdicts import InvalidToolCall
from mlx_stack_proxy.wire.reply import MAX_CALLS
from tests.engine.exchanges import asked_again
from tests.support.replies import completion
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


NONE_NOW = "no function may be called now; answer with text"
NOT_SEARCH = 'function "list_files" must be called, not "search"'
NONE_WAS = "a function must be called, and none was"
MUST = 'function "list_files" must be called'
DONE = message(text="Done.")
CUT = message(call(), finish="length")
DISOBEYED = {
    "none": ("none", message(call()), NONE_NOW),
    "none, and the server lost one": (
        "none",
        message(finish="tool_calls"),
        NONE_NOW,
    ),
    "another one": (NAMED, message(call()), NOT_SEARCH),
    "another one, and the length cuts behind it": (NAMED, CUT, NOT_SEARCH),
    "named, none": (NAMED, DONE, MUST),
    "required": ("required", DONE, NONE_WAS),
    "Anthropic's": ({"type": "tool", "name": "list_files"}, message(call()), NOT_SEARCH),
    "not allowed": (
        allowed("auto", "list_files", "write_file"),
        message(call()),
        'function "list_files" or "write_file" alone may be called, not "search"',
    ),
    "allowed, none": (allowed("required", "list_files"), DONE, MUST),
}


@pytest.mark.parametrize("name", DISOBEYED)
def test_tool_choice_is_obeyed(name: str) -> None:
    choice, reply, error = DISOBEYED[name]
    outcome = judged(reply, asked(tool_choice=choice))
    assert [(one.kind, one.error) for one in outcome.failures] == [("tool_choice", error)]


@pytest.mark.parametrize(
    ("choice", "reply"),
    [
        ("auto", message(call())),
        ("required", message(call())),
        (NAMED, message(call("list_files", "{}"))),
        ({"type": "function", "name": "search"}, message(call())),
        (allowed("required", "list_files", "search"), message(call())),
        ({"type": "allowed_tools"}, message(call())),
        ({"function": 5}, message(call())),
        (5, message(call())),
        ("required", message(text="I was cu", finish="length")),
        ("none", message(text='<tool_call>{"name": "list_files"}</tool_call>')),
    ],
    ids=str,
)
def test_what_tool_choice_allows_passes(choice: Any, reply: Json) -> None:
    outcome = judged(reply, asked(tool_choice=choice))
    assert outcome.verdict is None
    assert outcome.repairs is None
    assert outcome.choice == reply["choices"][0]


def test_json_that_was_asked_for_is_no_call() -> None:
    said = '{"name": "search", "arguments": {"query": "x"}}'
    schema = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}
    wanted = {"type": "json_schema", "json_schema": {"name": "n", "schema": schema}}
    for text in (said, f"<think>So.</think>{said}"):
        outcome = judged(message(text=text), asked(response_format=wanted))
        assert outcome.choice["message"] == {"role": "assistant", "content": said}
    schema = {**schema, "required": ["name", "age"]}
    wanted = {"type": "json_schema", "json_schema": {"name": "n", "schema": schema}}
    outcome = judged(message(text=said), asked(response_format=wanted))
    assert outcome.calls == [("search", {"query": "x"})]


def test_without_parallel_calls_the_first_is_kept() -> None:
    two = message(call(), call("list_files", "{}", "call_2"))
    outcome = judged(two, asked(parallel_tool_calls=False))
    assert outcome.calls == [("search", {"query": "quokka"})]
    assert outcome.repairs == "parallel_calls"
    assert outcome.incidents == [("tool_call_repaired", ("parallel_calls",))]
    assert judged(two, asked(parallel_tool_calls=True)).repairs is None


def test_the_same_id_twice() -> None:
    twice = message(call(), call("list_files", "{}"))
    outcome = judged(twice)
    first, second = ids(outcome)
    assert first == "call_1"
    assert second.startswith("call_") and second != first
    assert outcome.repairs == "duplicate_id"
    outcome = judged(twice, repair="off")
    assert outcome.kinds == ["duplicate_id"]
    assert (outcome.failures[0].tool, outcome.failures[0].position) == ("list_files", 1)


@pytest.mark.parametrize("missing", ["", None])
def test_a_missing_id_is_made_but_for_the_older_form(missing: Any) -> None:
    outcome = judged(message(call(id=missing)))
    assert ids(outcome)[0].startswith("call_")
    assert outcome.repairs == "missing_id"
    assert judged(message(call(id=missing)), asked(legacy=True)).repairs is None


def test_a_call_in_tools_ends_as_one() -> None:
    replied = message(call(), finish="function_call")
    assert judged(replied).choice["finish_reason"] == "tool_calls"
    older = judged(replied, asked(legacy=True))
    assert older.choice["finish_reason"] == "function_call"


KNOWN = '<tool_call>{"name": "list_files", "arguments": {}}</tool_call>'
MANY = [call("list_files", "{}", f"c{place}") for place in range(MAX_CALLS + 1)]


REFUSED = {
    "lost": (message(finish="tool_calls"), TOOLS, ("lost_call", -1)),
    "one of two": (message(call(), call(arguments="{}", id="b")), TOOLS, ("missing_required", 1)),
    "unknown": (message(call("write_files", '{"path": "a"}')), TOOLS, ("unknown_tool", 0)),
    "unknown, as text": (message(text=UNKNOWN), TOOLS, ("unknown_tool", -1)),
    "unknown, behind a known one": (
        message(text=f"First this.\n{KNOWN}\n{UNKNOWN}"),
        TOOLS,
        ("unknown_tool", -1),
    ),
    "too many": (message(*MANY), TOOLS, ("too_many_calls", -1)),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_refused(name: str) -> None:
    reply, tools, failure = REFUSED[name]
    outcome = judged(reply, asked(tools=tools))
    assert [(one.kind, one.position) for one in outcome.failures] == [failure]
    assert outcome.incidents == [("tool_call_invalid", (failure[0],))]


@pytest.mark.parametrize(
    ("reply", "text"),
    [
        (message(call("f", '{"path": "a"}')), '{"name":"f","arguments":{"path":"a"}}'),
        (message(call("f", "{a"), call("g", "")),
         '{"name":"f","arguments":"{a"}\n{"name":"g","arguments":{}}'),
        (message(call("f"), text="Let me look."), "Let me look."),
        (message(text="So.", finish="tool_calls"), "So."),
    ],
)  # fmt: skip
def test_where_no_tools_are_offered_no_call_is_a_bad_one(reply: Json, text: str) -> None:
    outcome = judged(reply, asked(tools=[]))
    assert outcome.verdict is None
    assert outcome.choice["message"].get("content") == text
    assert not outcome.choice["message"].get("tool_calls")
    assert outcome.choice["finish_reason"] == "stop"


@pytest.mark.parametrize("finish", ["tool_calls", "function_call"])
def test_a_text_that_ends_as_a_call_is_the_answer_if_the_model_stays_with_it(finish: str) -> None:
    lost = message(text="It is the quokka.", finish=finish)
    outcome = judged(lost)
    assert (outcome.kinds, outcome.doubted) == (["lost_call"], True)
    for settled in (
        judged(lost, asked_again(asked(), outcome.verdict)),
        judged(lost, asked(tool_choice="none")),
        judged(lost, validate_json=False),
    ):
        assert settled.verdict is None
        assert settled.choice["finish_reason"] == "stop"
        assert settled.choice["message"]["content"] == "It is the quokka."


@pytest.mark.parametrize("empty", ["{}", "", '{"query": '])
def test_the_valid_call_in_the_text_stands_for_the_empty_one(empty: str) -> None:
    other = call("list_files", "{}", "b")
    in_text = f'I look.\n<tool_call>{{"name": "search", "arguments": {GOOD}}}</tool_call>'
    outcome = judged(message(other, call(arguments=empty), text=in_text))
    assert outcome.calls == [("list_files", {}), ("search", {"query": "quokka"})]
    assert outcome.choice["message"]["content"] == "I look.\n"
    assert judged(message(other, call(arguments=empty), text="I look.")).verdict is not None
    wrong = in_text.replace("query", "q")
    assert judged(message(call(arguments=empty), text=wrong)).kinds[0] != "unread_call"


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
    assert (outcome.kinds, outcome.doubted) == ([kind], False)


EMPTY = message(call("write_file", '{"path": "a.txt", "content": ""}'))
EMPTIED = [{"role": "user", "content": "Empty a.txt, too."}, EMPTY["choices"][0]["message"]]
GET = tool("get_order", parameters("order_id", order_id="string"))
LOOK_UP = {"messages": [{"role": "user", "content": "Look up 8874449."}], "tools": [*TOOLS, GET]}
SLIP = message(call("get_order", '{"order_id": "887449"}'))
RIGHT = message(call("get_order", '{"order_id": "8874449"}'))


def in_two_choices(reply: Json) -> Json:
    (first,) = reply["choices"]
    return {**reply, "choices": [first, {**first, "index": 1}]}


@pytest.mark.parametrize(
    ("reply", "body", "kind", "ask_next"),
    [
        (message(text=BEHIND_PROSE), {}, "unread_call", True),
        (message(text=CLOSED), {}, "unread_call", True),
        (message(text=IN_A_FENCE), {}, "unread_call", True),
        (message(text=OF_NO_TOOL), {}, "unknown_tool", False),
        (message(text=f"Hermes models write calls like {UNKNOWN}"), {}, "unread_call", True),
        (EMPTY, {}, "empty_value", False),
        (SLIP, LOOK_UP, "miscopied_id", True),
    ],
)
def test_what_is_doubted(reply: Json, body: Json, kind: str, ask_next: bool) -> None:
    outcome = judged(reply, asked(**body))
    assert outcome.kinds == [kind]
    assert isinstance(outcome.verdict, InvalidToolCall)
    assert outcome.verdict.doubt
    assert outcome.verdict.ask_next is ask_next
    assert outcome.incidents == [("tool_call_invalid", (kind,))]


@pytest.mark.parametrize(
    ("reply", "body", "rules"),
    [
        (message(text=BEHIND_PROSE, finish="length"), {}, {}),
        (in_two_choices(message(text=BEHIND_PROSE)), {"n": 2}, {}),
        (message(call(), text=BEHIND_PROSE), {}, {}),
        (message(text=BEHIND_PROSE), {"tools": []}, {}),
        (message(text=BEHIND_PROSE), {"tool_choice": "none"}, {}),
        (message(text=BEHIND_PROSE), {"response_format": {"type": "text"}}, {}),
        (message(text=BEHIND_PROSE), {}, {"rescue_text_calls": False}),
        (EMPTY, {"messages": EMPTIED}, {}),
        (RIGHT, LOOK_UP, {}),
        (SLIP, LOOK_UP, {"validate_plausibility": False}),
        (in_two_choices(SLIP), {**LOOK_UP, "n": 2}, {}),
        (message(*MANY[:-1]), {}, {}),
    ],
)
def test_what_is_not_doubted(reply: Json, body: Json, rules: Json) -> None:
    assert judged(reply, asked(**body), **rules).verdict is None


@pytest.mark.parametrize(
    ("doubted", "answer"),
    [
        (message(text=BEHIND_PROSE), message(call())),
        (message(text=BEHIND_PROSE), message(text="It is a small marsupial.")),
        (EMPTY, EMPTY),
    ],
)
def test_what_is_said_after_a_doubt_is_doubted_no_more(doubted: Json, answer: Json) -> None:
    again = asked_again(asked(), judged(doubted).verdict)
    assert judged(answer, again).verdict is None


LEAKED = message(call(arguments='{"query": "quokka</parameter>"}'))


def test_a_mark_that_stays_after_a_doubt_is_no_answer() -> None:
    again = asked_again(asked(), judged(LEAKED).verdict)
    assert judged(LEAKED, again).kinds == ["leaked_markup"]
    assert judged(message(call()), again).verdict is None
    assert judged(message(text="It is a small marsupial."), again).verdict is None


def test_what_is_surely_wrong_comes_before_a_slip_whose_error_names_the_id() -> None:
    assert [one.error for one in judged(SLIP, asked(**LOOK_UP)).failures] == [
        'field "order_id" in function "get_order" is "887449", which stands nowhere in the '
        'conversation, where "8874449" does',
    ]
    both = message(SLIP["choices"][0]["message"]["tool_calls"][0], call("search", "{}", "call_2"))
    outcome = judged(both, asked(**LOOK_UP))
    assert (outcome.kinds, outcome.doubted) == (["missing_required"], False)


def test_marked_calls_with_prose_between_them_are_all_calls() -> None:
    one = '<|tool_call>call:search{query:<|"|>quokka<|"|>}<tool_call|>'
    two = "<|tool_call>call:list_files{}<tool_call|>"
    outcome = judged(message(text=f"First this.\n{one}\nThen that:\n{two}"))
    assert outcome.calls == [("search", {"query": "quokka"}), ("list_files", {})]
    assert outcome.choice["message"]["content"] == "First this.\n\nThen that:\n"


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
    assert judged(cut_off(call("write_file", half))).calls == []


def test_a_whole_call_before_a_length_cut_is_checked() -> None:
    assert judged(cut_off(call())).calls == [("search", {"query": "quokka"})]
    assert judged(cut_off(call("search", "{}"))).kinds == ["missing_required"]


@pytest.mark.parametrize(
    "half",
    [
        "<function=write_file><parameter=path>a.py</parameter>",
        '<tool_call>{"name": "write_file", "arguments": {"path": "a.py", "content": "x',
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


@pytest.mark.parametrize(
    "reply",
    [message(call(), text="Let me look."), message(text='{"age": ', finish="length")],
    ids=["a call", "a cut reply"],
)
def test_what_is_no_failure_of_the_format(reply: Json) -> None:
    assert judged(reply, asked(response_format=FORMATS[0])).verdict is None


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


# Calls next to which something can't be read, and calls at the end of mere thoughts

SEARCH = f'<tool_call>{{"name": "search", "arguments": {GOOD}}}</tool_call>'
BARE = '{"name": "search", "arguments": {"query": "emu"}}'


@pytest.mark.parametrize(
    "text",
    [
        f"{SEARCH}\n<tool_call>\nsearch for emus\n</tool_call>",
        f"{SEARCH} tool_call>{BARE}</tool_call>",  # half a mark
        f"{SEARCH}\n<function=search><parameter=que",
        f'fly[TOOL_CALLS]{{"to": "emu"}}[TOOL_CALLS]search[ARGS]{GOOD}',  # no tool of that name
        f"{BARE}\n{SEARCH}",
        f'search[TOOL_CALLS]{{"query": "emu"}}[TOOL_CALLS]search[ARGS]{GOOD}',
        f'<｜DSML｜invoke name="search"><｜DSML｜param emu</｜DSML｜invoke>\n{SEARCH}',
    ],
)
def test_what_cannot_be_read_holds_back_the_call_beside_it(text: str) -> None:
    found = judged(message(text=text))
    assert (found.kinds, found.doubted) == (["unread_call"], True)
    assert judged(message(text=text), validate_plausibility=False).calls


@pytest.mark.parametrize(
    "text",
    [
        f"I search for it: search(query='quokka').\n{SEARCH}\nDone.",
        f"{SEARCH}\nThen I will use `<tool_call>` for search once more.",
        f"{SEARCH}\n<tool_response> is what comes of it.",
    ],
)
def test_prose_around_a_call_is_none(text: str) -> None:
    assert judged(message(text=text)).calls == [("search", {"query": "quokka"})]


KIMI = (
    "<|tool_calls_section_begin|><|tool_call_begin|>functions.search:0"
    f"<|tool_call_argument_begin|>{GOOD}<|tool_call_end|><|tool_calls_section_end|>"
)


@pytest.mark.parametrize(
    "said",
    [
        {"content": f"<think>I look.\n{SEARCH}"},
        {"content": f"<think>I look.\n{SEARCH}\n</think>\n"},
        {"content": f"[THINK]Maybe <tool_call>? No: {KIMI}"},
        {"content": None, "reasoning_content": f"I look. {KIMI}"},
    ],
)
def test_a_call_that_ends_a_mere_thought(said: dict[str, str]) -> None:
    assert judged(completion(said, "stop")).kinds == ["unread_call"]
    found = judged(completion(said, "stop"), validate_plausibility=False)
    assert found.calls == [("search", {"query": "quokka"})]
    assert found.choice["finish_reason"] == "tool_calls"
    thought = said["content"]
    for called in (SEARCH, KIMI):
        thought = thought and thought.partition(called)[0]
    assert found.choice["message"]["content"] == thought


@pytest.mark.parametrize(
    "said",
    [
        {"content": f"<think>I look. {SEARCH} Or rather not, it is the quokka."},
        {"content": f"<think>{SEARCH}</think>It is the quokka."},
        {"content": "It is the quokka.", "reasoning_content": SEARCH},
        {"content": f"<think>{SEARCH.replace('search', 'fly')}"},
    ],
)
def test_a_call_that_was_thought_over_is_none(said: dict[str, str]) -> None:
    assert "tool_calls" not in judged(completion(said, "stop")).choice["message"]
