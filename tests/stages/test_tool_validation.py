"""The stage on whole replies: what it refuses, what it mends, and what it must not touch."""

from __future__ import annotations

import itertools
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.core.attempt import Attempt
from app.core.exchange import Controls, Exchange
from app.core.verdicts import CallFailure, InvalidToolCall, Verdict
from app.settings import DEFAULT_TIERS, Settings
from app.stages.tool_validation import ToolValidation
from app.stages.tool_validation import stage as stage_module
from tests.core.exchanges import Faults, attempt, client_request, exchange, relayed
from tests.support.replies import completion, stream_bytes, text_chunks, with_role
from tests.tool_calls.calls import parameters, tool

Json = dict[str, Any]
SEARCH = tool("search", parameters("query", query="string", limit="integer"))
WRITE = tool("write_file", parameters("path", "content", path="string", content="string"))
LIST = tool("list_files", parameters())
TOOLS = [SEARCH, WRITE, LIST]
GOOD = '{"query": "quokka"}'


def stage(**rules: Any) -> ToolValidation:
    return ToolValidation(
        Settings(tiers=DEFAULT_TIERS, reliability={"tool_validation": rules})  # type: ignore[arg-type]
    )


def asked(
    controls: Controls | None = None, legacy: bool = False, stream: bool = False, **body: Any
) -> Exchange:
    body.setdefault("tools", TOOLS)
    request = client_request(legacy_functions=legacy, stream=stream, **body)
    return exchange(request, controls=controls)


def call(name: str = "search", arguments: Any = GOOD, id: str | None = "call_1") -> Json:
    return {"id": id, "type": "function", "function": {"name": name, "arguments": arguments}}


def message(*calls: Json, text: str | None = None, finish: str | None = None) -> Json:
    said: Json = {"content": text}
    if calls:
        said["tool_calls"] = list(calls)
    return completion(said, finish or ("tool_calls" if calls else "stop"))


class Outcome:
    """A reply after the stage: its verdict, and what a client would get of it."""

    def __init__(self, whole: Exchange, one: Attempt, verdict: Verdict | None) -> None:
        self.exchange = whole
        self.verdict = verdict
        self.attempt = one

    @property
    def failures(self) -> tuple[CallFailure, ...]:
        if self.verdict is None:
            return ()
        assert isinstance(self.verdict, InvalidToolCall)
        return self.verdict.failures

    @property
    def kinds(self) -> list[str]:
        return [failure.kind for failure in self.failures]

    @property
    def choice(self) -> Json:
        assert self.verdict is None, self.verdict
        choice: Json = self.attempt.completion()["choices"][0]
        return choice

    @property
    def calls(self) -> list[tuple[str, Any]]:
        calls = self.choice["message"].get("tool_calls") or []
        functions = [one["function"] for one in calls]
        return [(f["name"], json.loads(f["arguments"])) for f in functions]

    @property
    def repairs(self) -> str | None:
        return self.exchange.reply_notes.get("Repairs")

    @property
    def incidents(self) -> list[tuple[str, tuple[str, ...]]]:
        return [(one.kind, one.labels) for one in self.exchange.incidents]


def judged(reply: Json, whole: Exchange | None = None, **rules: Any) -> Outcome:
    whole = whole or asked()
    one = attempt(whole, stages=[stage(**rules)], hold_whole=True)
    assert one.on_request() is None
    one.take_completion(reply, 0.0)
    return Outcome(whole, one, one.settle())


NAMED = {"type": "function", "function": {"name": "list_files"}}


@pytest.mark.parametrize(
    ("choice", "reply", "error"),
    [
        ("none", message(call()), "no function may be called now; answer with text"),
        (NAMED, message(call()), 'function "list_files" must be called, not "search"'),
        (NAMED, message(text="Done."), 'function "list_files" must be called'),
        ("required", message(text="Done."), "a function must be called, and none was"),
    ],
    ids=["none", "another one", "named, none", "required"],
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
        ("required", message(text="I was cu", finish="length")),
    ],
    ids=str,
)
def test_what_tool_choice_allows_passes(choice: Any, reply: Json) -> None:
    outcome = judged(reply, asked(tool_choice=choice))
    assert outcome.verdict is None
    assert outcome.repairs is None


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


def ids(outcome: Outcome) -> list[str]:
    return [one["id"] for one in outcome.choice["message"]["tool_calls"]]


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


def test_the_older_form_needs_no_id() -> None:
    outcome = judged(message(call(id="")), asked(legacy=True))
    assert outcome.verdict is None
    assert outcome.repairs is None


@pytest.mark.parametrize("text", [None, "Let me look."])
@pytest.mark.parametrize("finish", ["tool_calls", "function_call"])
def test_a_call_that_the_server_lost(text: str | None, finish: str) -> None:
    outcome = judged(message(text=text, finish=finish))
    assert outcome.kinds == ["lost_call"]
    assert outcome.failures[0].position == -1


def test_one_bad_call_among_good_ones_makes_the_reply_bad() -> None:
    outcome = judged(message(call(), call("search", "{}", "b"), call("list_files", "{}", "c")))
    assert [(one.kind, one.position) for one in outcome.failures] == [("missing_required", 1)]
    assert outcome.failures[0].error == 'missing required field "query" in function "search"'


def test_a_call_without_any_tools_offered() -> None:
    outcome = judged(message(call()), asked(tools=[]))
    assert [(one.kind, one.error) for one in outcome.failures] == [
        ("unknown_tool", 'function "search" does not exist: no tools are available')
    ]


def test_an_unknown_tool_names_the_nearest() -> None:
    outcome = judged(message(call("write_files", '{"path": "a", "content": ""}')))
    assert outcome.kinds == ["unknown_tool"]
    assert '"write_file"' in outcome.failures[0].error
    assert outcome.incidents == [("tool_call_invalid", ("unknown_tool",))]


UNKNOWN = '<tool_call>{"name": "delete_all", "arguments": {}}</tool_call>'


def test_an_unknown_tool_in_a_marked_format() -> None:
    outcome = judged(message(text=UNKNOWN))
    assert [(one.kind, one.tool) for one in outcome.failures] == [("unknown_tool", "delete_all")]


def test_an_unknown_tool_in_a_marked_format_beside_a_known_one() -> None:
    known = '<tool_call>{"name": "list_files", "arguments": {}}</tool_call>'
    outcome = judged(message(text=f"First this.\n{known}\n{UNKNOWN}"))
    assert outcome.kinds == ["unknown_tool"]


def test_prose_about_an_unknown_tool_stays_prose() -> None:
    said = f"Hermes models write calls like {UNKNOWN}, as their template says."
    outcome = judged(message(text=said))
    assert outcome.choice["message"]["content"] == said


def test_more_calls_than_the_cap() -> None:
    many = [call("list_files", "{}", f"c{place}") for place in range(stage_module.MAX_CALLS + 1)]
    outcome = judged(message(*many))
    assert outcome.kinds == ["too_many_calls"]
    assert "129 calls" in outcome.failures[0].error
    assert judged(message(*many[:-1])).verdict is None


@pytest.mark.parametrize(
    ("arguments", "kind"),
    [
        (f'{{"query": "{"x" * 1_000_000}"}}', "too_large"),
        (f'{{"query": {"[" * 100}{"]" * 100}}}', "too_deep"),
    ],
    ids=["size", "nesting"],
)
def test_arguments_beyond_the_caps(arguments: str, kind: str) -> None:
    outcome = judged(message(call("search", arguments)))
    assert outcome.kinds == [kind]
    assert len(outcome.failures[0].error) < 300


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

PERSON = {"type": "object", "properties": {"age": {"type": "integer"}}, "required": ["age"]}
FORMATS = [
    {"type": "json_object"},
    {"type": "json_schema", "json_schema": {"name": "person", "schema": PERSON}},
]


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


def test_a_schema_of_response_format_is_checked() -> None:
    outcome = judged(message(text='{"name": "Ada"}'), asked(tools=[], response_format=FORMATS[1]))
    assert outcome.kinds == ["missing_required"]


def test_a_call_is_a_good_reply_under_response_format() -> None:
    outcome = judged(message(call(), text="Let me look."), asked(response_format=FORMATS[0]))
    assert outcome.verdict is None


def test_a_cut_reply_is_no_failure_of_its_format() -> None:
    cut = message(text='{"age": ', finish="length")
    assert judged(cut, asked(tools=[], response_format=FORMATS[0])).verdict is None


# Every switch


@pytest.mark.parametrize(
    ("switched_off", "reply"),
    [
        ({"validate_json": False}, message(call("search", "{query: quokka, [}"))),
        ({"validate_json": False}, message(finish="tool_calls")),
        ({"validate_schema": False}, message(call("search", '{"query": 5}'))),
        ({"validate_tool_names": False}, message(call("delete_all", "{}"))),
        ({"validate_tool_names": False}, message(text=UNKNOWN)),
        ({"validate_plausibility": False}, message(call("search", '{"query": ""}'))),
    ],
    ids=str,
)
def test_a_check_that_is_switched_off(switched_off: Json, reply: Json) -> None:
    # Without repair, so that what passes passes for want of the check.
    assert judged(reply, repair="off").verdict is not None
    outcome = judged(reply, repair="off", **switched_off)
    assert outcome.verdict is None
    assert outcome.repairs is None


def test_tool_choice_is_checked_with_the_names() -> None:
    outcome = judged(message(call()), asked(tool_choice="none"), validate_tool_names=False)
    assert outcome.verdict is None


def test_repair_off() -> None:
    trailing = message(call("search", '{"query": "x",}'))
    assert judged(trailing).repairs == "trailing_comma"
    assert judged(trailing, repair="off").kinds == ["invalid_json"]


def test_rescue_off() -> None:
    said = '<tool_call>{"name": "search", "arguments": {"query": "x"}}</tool_call>'
    assert judged(message(text=said)).calls == [("search", {"query": "x"})]
    outcome = judged(message(text=said), rescue_text_calls=False)
    assert outcome.choice["message"]["content"] == said


def test_response_format_off() -> None:
    whole = asked(tools=[], response_format=FORMATS[0])
    assert judged(message(text="no"), whole, response_format=False).verdict is None


# Rescue


def test_a_rescued_call() -> None:
    said = 'On it.\n<tool_call>{"name": "search", "arguments": {"query": "x"}}</tool_call>'
    outcome = judged(message(text=said))
    assert outcome.calls == [("search", {"query": "x"})]
    assert outcome.choice["message"]["content"].strip() == "On it."
    assert outcome.choice["finish_reason"] == "tool_calls"
    assert outcome.repairs == "rescued"
    assert outcome.incidents == [("tool_call_rescued", ("hermes_json",))]
    assert ids(outcome)[0].startswith("call_")


def test_a_rescued_call_is_checked_and_mended_too() -> None:
    said = "<tool_call>{'name': 'search', 'arguments': {'query': 'x', 'limit': '5'}}</tool_call>"
    outcome = judged(message(text=said))
    assert outcome.calls == [("search", {"query": "x", "limit": 5})]
    assert "rescued" in (outcome.repairs or "")
    bad = '<tool_call>{"name": "search", "arguments": {"limit": 5}}</tool_call>'
    assert judged(message(text=bad)).kinds == ["missing_required"]


def test_a_bad_call_written_as_text_stays_as_it_came_for_the_retry() -> None:
    bad = '<tool_call>{"name": "search", "arguments": {"limit": 5}}</tool_call>'
    outcome = judged(message(text=bad))
    choice = outcome.attempt.reply.choices[0]
    assert (choice.text, choice.tool_calls) == (bad, [])
    assert outcome.exchange.last_response == {
        "role": "assistant",
        "content": bad,
        "tool_calls": [],
    }
    assert outcome.incidents == [("tool_call_invalid", ("missing_required",))]


# Several choices


def test_one_bad_choice_makes_the_reply_bad_and_mends_none() -> None:
    reply = message(call("search", '{"query": "x",}'))
    other = message(call("search", "{}"))["choices"][0]
    reply["choices"].append({**other, "index": 1})
    outcome = judged(reply, asked(n=2))
    assert [(one.kind, one.choice) for one in outcome.failures] == [("missing_required", 1)]
    assert outcome.repairs is None
    assert outcome.incidents == [("tool_call_invalid", ("missing_required",))]


def test_choices_are_mended_each_on_its_own() -> None:
    reply = message(call("search", '{"query": "x",}'))
    text = message(text="Nothing to call.")["choices"][0]
    reply["choices"].append({**text, "index": 1})
    outcome = judged(reply, asked(n=2))
    first, second = outcome.attempt.completion()["choices"]
    assert first["message"]["tool_calls"][0]["function"]["arguments"] == '{"query": "x"}'
    assert second == {**text, "index": 1}


# What is right is never touched

ODD_SCHEMAS: list[Any] = [
    None,
    True,
    {},
    [],
    "any",
    {"type": "any"},
    {"type": ["object", "null"], "properties": {"query": {"type": ["string", "null"]}}},
    {"type": "object", "properties": {"query": True, "limit": {"items": False}}},
    {"type": "object", "properties": {"query": {"$ref": "#/$defs/q"}}, "$defs": {"q": {}}},
    {"type": "object", "properties": {"query": {"$ref": "http://127.0.0.1:9/q.json"}}},
    {"type": "object", "properties": {"query": {"type": "text", "pattern": "(a+)+$"}}},
    {"type": "object", "properties": {"query": {"pattern": "["}}, "required": "query"},
    {"$schema": "http://json-schema.org/draft-04/schema#", "type": "object", "minimum": "x"},
    {"type": "object", "properties": {"model_config": {"type": "string"}}},
]
SPELLINGS = [GOOD, '{"query":"quokka"}', '{\n  "query" : "quokka"\n}', '{"query": "qu\\u006fkka"}']


@pytest.mark.parametrize("spelling", SPELLINGS)
@pytest.mark.parametrize("schema", ODD_SCHEMAS, ids=str)
def test_a_right_call_goes_out_as_the_bytes_that_came(schema: Any, spelling: str) -> None:
    faults = Faults()
    whole = asked(tools=[tool("search", schema), LIST], stream=True)
    one = attempt(whole, stages=[stage()], faults=faults)
    pieces = [
        {"tool_calls": [{"index": 0, **call("search", "")}]},
        *({"tool_calls": [{"index": 0, "function": {"arguments": c}}]} for c in spelling),
    ]
    stream = stream_bytes(with_role({"content": "Let me < see."}, *pieces, finish="tool_calls"))
    assert relayed(one, [stream]) == stream
    assert faults == []
    assert whole.reply_notes == {}


PROSE = st.text(st.sampled_from("ab <>{}[]|`\"'\n:_/\\tolcaun=e.…é"), max_size=120)


@given(PROSE, st.lists(st.integers(0, 120), max_size=6))
def test_prose_goes_out_as_it_came(prose: str, cuts: list[int]) -> None:
    places = sorted({0, len(prose), *(at for at in cuts if at < len(prose))})
    parts = [prose[a:b] for a, b in itertools.pairwise(places)]
    stream = stream_bytes(text_chunks(*parts))
    one = attempt(asked(stream=True), stages=[stage()])
    out = bytearray(one.feed(stream, 0.0))
    if one.settle() is None and not one.reply.mended:
        out += one.rest()
        said = [
            json.loads(line[6:])["choices"][0]["delta"].get("content") or ""
            for line in bytes(out).decode().split("\n\n")
            if line.startswith('data: {"id"') and '"choices": []' not in line
            if json.loads(line[6:])["choices"]
        ]
        assert "".join(said) == prose


# A stage that faults, and one that is left out


def test_a_stage_that_faults_lets_the_reply_through(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: Any, **__: Any) -> Any:
        raise RuntimeError("a fault of ours")

    monkeypatch.setattr(stage_module, "check_call", broken)
    stream = stream_bytes(with_role({"tool_calls": [{"index": 0, **call("search", "{}")}]}))
    faults = Faults()
    assert relayed(attempt(asked(stream=True), stages=[stage()], faults=faults), [stream]) == stream
    assert [(name, str(error)) for name, error in faults] == [
        ("tool_validation", "a fault of ours")
    ]


def test_bypass() -> None:
    whole = asked(Controls(bypass=frozenset({"validation"})))
    assert judged(message(call("delete_all", "{")), whole).verdict is None
    whole = asked(Controls(bypass=frozenset({"loop", "budget"})))
    assert judged(message(call("delete_all", "{")), whole).verdict is not None


# The client's own history


@pytest.mark.parametrize(
    ("arguments", "sent"),
    [
        ('{"query": ', '{"_unparsed":"{\\"query\\": "}'),
        ("plain words", '{"_unparsed":"plain words"}'),
        ("[1]", '{"_unparsed":"[1]"}'),
        (["a"], '{"_unparsed":"[\\"a\\"]"}'),
        ("", "{}"),
        (None, "{}"),
    ],
)
def test_unparsable_arguments_of_the_history(arguments: Any, sent: str) -> None:
    history = [
        {"role": "user", "content": "hello"},
        {"role": "assistant", "content": None, "tool_calls": [call("search", arguments)]},
        {"role": "tool", "tool_call_id": "call_1", "content": "?"},
    ]
    whole = asked(messages=history)
    one = attempt(whole, stages=[stage()])
    assert one.on_request() is None
    messages = one.request.body["messages"]
    assert messages[1]["tool_calls"][0]["function"] == {"name": "search", "arguments": sent}
    assert (messages[0], messages[2]) == (history[0], history[2])
    assert history[1]["tool_calls"][0]["function"]["arguments"] == arguments, "ours is a copy"
    assert [(one.kind, one.labels) for one in whole.incidents] == [
        ("tool_call_repaired", ("unparsed_history",))
    ]


@pytest.mark.parametrize("arguments", [GOOD, "{}", {"query": "x"}])
def test_a_readable_history_is_sent_as_it_came(arguments: Any) -> None:
    history = [{"role": "assistant", "tool_calls": [call("search", arguments)]}]
    whole = asked(messages=history)
    one = attempt(whole, stages=[stage()])
    one.on_request()
    assert one.request.body["messages"][0] is history[0]
    assert whole.incidents == []


def test_a_long_unparsable_text_is_shortened() -> None:
    whole = asked(messages=[{"role": "assistant", "tool_calls": [call("search", "x" * 9000)]}])
    one = attempt(whole, stages=[stage()])
    one.on_request()
    sent = one.request.body["messages"][0]["tool_calls"][0]["function"]["arguments"]
    assert len(json.loads(sent)["_unparsed"]) == 2000
