"""The request of a retry: it tells the model what was wrong, in words and in a place that every
chat template takes.
"""

from __future__ import annotations

import copy
import json
import re
from typing import Any

import pytest

from mlx_stack_proxy.engine import correction
from mlx_stack_proxy.engine.build_request import build
from mlx_stack_proxy.engine.outcome import Outcome
from mlx_stack_proxy.engine.steps import Retry
from mlx_stack_proxy.engine.verdicts import CallFailure, InvalidToolCall, truncated
from mlx_stack_proxy.settings import DEFAULT_TIERS, Settings
from mlx_stack_proxy.wire.call import Call
from mlx_stack_proxy.wire.reply import ChoiceReply, Reply
from tests.engine.exchanges import client_request, exchange
from tests.tool_validation.calls import RUN, SEARCH, WRITE

Json = dict[str, Any]
TOOLS = [SEARCH, WRITE, RUN]
MISSING = 'missing required field "query" in function "search"'
EXACT = """\
Your previous response contained an invalid tool call. The error was:
missing required field "query" in function "search".
You must respond with valid JSON matching the tool schema exactly.
Available tools: search, write_file, run_terminal_command."""
USER = {"role": "user", "content": "Find it."}
FAILED = CallFailure("search", "missing_required", MISSING, 0, 0)


def _tool(name: str, properties: Json | None) -> Json:
    parameters = properties if properties is None else {"type": "object", "properties": properties}
    return {"type": "function", "function": {"name": name, "parameters": parameters}}


def reply(*calls: Call, text: str = "", index: int = 0) -> Reply:
    choice = ChoiceReply()
    choice.text = text
    choice.tool_calls = list(calls)
    return Reply({index: choice})


def corrected(
    came: Reply,
    *failures: CallFailure,
    messages: list[Json] | None = None,
    role: str = "user",
    placement: str = "user",
    with_schema: bool = False,
    doubt: bool = False,
    **body: Any,
) -> list[Json]:
    whole = {"messages": messages or [USER], "tools": TOOLS, **body}
    before = copy.deepcopy(whole)
    new = correction.corrected(
        whole,
        came,
        InvalidToolCall(failures or (FAILED,), doubt),
        role=role,
        placement=placement,
        with_schema=with_schema,
    )
    assert whole == before, "the client's own messages are not changed"
    ids: list[str] = []
    for message in new:  # calls and results stay in pairs, with nothing between
        if message["role"] == "tool":
            assert message["tool_call_id"] == ids.pop(0)
        else:
            assert ids == []
        ids += [one["id"] for one in message.get("tool_calls", ())]
    assert ids == []
    return new


BAD = Call("search", '{"limit": 5}', "call_1")


def test_a_call_that_can_be_replayed() -> None:
    new = corrected(reply(BAD, text="Let me look."))
    function = {"name": "search", "arguments": '{"limit": 5}'}
    assert new == [
        USER,
        {
            "role": "assistant",
            "content": "Let me look.",
            "tool_calls": [{"id": "call_1", "type": "function", "function": function}],
        },
        {"role": "tool", "tool_call_id": "call_1", "content": f"Error: {MISSING}."},
        {"role": "user", "content": EXACT},
    ]


def test_all_failures_are_listed_once() -> None:
    other = CallFailure("write_file", "x", 'field "path" in function "write_file" is empty', 0, 1)
    two = reply(BAD, Call("write_file", '{"path": ""}', "call_2"))
    *_, last = corrected(two, FAILED, other, FAILED)
    assert last["content"] == (
        "Your previous response contained an invalid tool call. The errors were:\n"
        'missing required field "query" in function "search".\n'
        'field "path" in function "write_file" is empty.\n'
        "You must respond with valid JSON matching the tool schema exactly.\n"
        "Available tools: search, write_file, run_terminal_command."
    )


def test_a_good_call_beside_the_bad_one_is_said_not_to_have_run() -> None:
    good = Call("search", '{"query": "x"}', "call_0")
    failed = CallFailure("search", "missing_required", MISSING, 0, 1)
    _, _, first, second, _ = corrected(reply(good, BAD), failed)
    assert first["content"].startswith("Error: not executed")
    assert second["content"] == f"Error: {MISSING}."


@pytest.mark.parametrize("identity", ["", "call_1"])
def test_calls_without_ids_of_their_own_get_some(identity: str) -> None:
    _, said, *_ = corrected(reply(BAD, Call("search", "{}", identity)))
    assert [one["id"] for one in said["tool_calls"]] == ["call_1", "call_retry_1"]


@pytest.mark.parametrize(
    "call",
    [
        Call("search", '{"query": ', "a"),
        Call("search", "[1]", "a"),
        Call("search", "", "a"),
        Call("se arch<|x|>", "{}", "a"),
        Call("", "{}", "a"),
    ],
    ids=str,
)
def test_what_can_not_be_replayed_is_not_quoted(call: Call) -> None:
    (only,) = corrected(reply(call))
    assert only["content"] == f"Find it.\n\n{EXACT}"
    _, said, last = corrected(reply(call, text="Let me look."))
    assert said == {"role": "assistant", "content": "Let me look."}
    assert last == {"role": "user", "content": EXACT}


TEXT = '{"name": "find", "arguments": {}}'
UNKNOWN = CallFailure(
    "find", "unknown_tool", 'function "find" does not exist; did you mean "search"?'
)


def test_a_call_written_as_text_is_the_models_own_turn() -> None:
    """Of 14 replies to a quote of the failed call, 9 repeated it; 3 held a valid call."""
    told = corrected(reply(text=f"<think>Well.</think>\n{TEXT}\n"), UNKNOWN)
    assert told == [
        USER,
        {"role": "assistant", "content": TEXT},
        {
            "role": "user",
            "content": 'That call was refused: there is no tool "find". '
            "The only tools are: search, write_file, run_terminal_command.\nMake the right call.",
        },
    ]


def test_where_a_template_may_refuse_it_there_is_no_turn_of_the_models() -> None:
    prefilled = [USER, {"role": "assistant", "content": "{"}]
    told = corrected(reply(text=TEXT), UNKNOWN, messages=prefilled)
    assert [one["role"] for one in told] == ["user", "assistant", "user"]
    told = corrected(reply(text=TEXT), UNKNOWN, role="system")
    assert [one["role"] for one in told] == ["system", "user"]
    long = corrected(reply(text="x" * 50_000), UNKNOWN)
    assert [one["role"] for one in long] == ["user"]


def test_no_words_about_a_text_quote_it() -> None:
    for doubt in (False, True):
        for failed in (UNKNOWN, CallFailure("search", "unread_call", 'a call of "search" stands')):
            told = corrected(reply(text=TEXT), failed, doubt=doubt)
            assert TEXT not in told[-1]["content"]
            assert not re.search(r"\byou(r|rs)?\b", told[-1]["content"], re.IGNORECASE)


def test_a_doubt_offers_both_readings() -> None:
    *_, last = corrected(reply(BAD), doubt=True)
    assert last["content"] == (
        "That call has not run yet:\n"
        'missing required field "query" in function "search".\n'
        "Make it again if it is right. If not, make the right call, or answer."
    )
    *_, last = corrected(reply(text=TEXT), UNKNOWN, doubt=True)
    assert last["content"].startswith("The only tools are:\n")
    assert last["content"].endswith(
        "\nrun_terminal_command(command)\nCall one of these, or answer."
    )


def test_a_tool_that_is_not_there_is_answered_with_the_signatures_of_those_that_are() -> None:
    """Named again, it is called again: measured with a small model."""
    wide: Json = {"x" * correction.MAX_PARAMETERS: {}, "y": {}}
    tools = [_tool("wide", wide), _tool("odd", None), _tool("read", {"path": {}, "line": {}})]
    many = [_tool(f"tool_{number}", {}) for number in range(correction.MAX_LISTED_TOOLS)]
    *_, last = corrected(reply(text=TEXT), UNKNOWN, doubt=True, tools=[*tools, *many])
    lines = last["content"].split("\n")
    assert lines[1:4] == ["wide(…)", "odd()", "read(path, line)"]
    assert lines[-2:] == ["…", "Call one of these, or answer."]
    assert UNKNOWN.tool not in last["content"]


def test_the_choice_that_failed_is_the_one_replayed() -> None:
    both = reply(Call("search", '{"query": "fine"}', "a"))
    both.choices[1] = reply(BAD).choices[0]
    _, said, *_ = corrected(both, CallFailure("search", "x", MISSING, 1, 0))
    assert said["tool_calls"][0]["function"]["arguments"] == BAD.arguments


def test_a_correction_goes_where_the_settings_want_it() -> None:
    new = corrected(reply(BAD), role="system")
    assert new[0] == {"role": "system", "content": EXACT}
    assert [one["role"] for one in new] == ["system", "user", "assistant", "tool"]
    new = corrected(reply(BAD), placement="tool_result")
    assert [one["role"] for one in new] == ["user", "assistant", "tool"]
    assert new[-1]["content"] == f"Error: {MISSING}.\n\n{EXACT}"


def test_the_schema_in_full() -> None:
    *_, last = corrected(reply(BAD), with_schema=True)
    head, _, told = last["content"].rpartition("\n")
    assert head == EXACT
    said, _, schema = told.partition(" must match: ")
    assert said == "The arguments of search"
    assert json.loads(schema) == SEARCH["function"]["parameters"]


def test_after_a_lost_call_the_schemas_of_all_tools() -> None:
    """Its text is lost, so nobody knows which tool was meant."""
    lost = CallFailure("", "lost_call", "a function was to be called, but could not be read")
    *_, last = corrected(reply(), lost, with_schema=True)
    for tool in TOOLS:
        assert f"The arguments of {tool['function']['name']} must match: " in last["content"]
    big = copy.deepcopy(SEARCH)
    big["function"]["parameters"]["description"] = "x" * 4_000
    *_, last = corrected(reply(), lost, with_schema=True, tools=[big, big])
    assert " must match: " not in last["content"]


def test_many_tools_are_not_all_listed() -> None:
    many = [{"type": "function", "function": {"name": f"t{n}"}} for n in range(60)]
    *_, last = corrected(reply(BAD), tools=many)
    assert last["content"].endswith("t38, t39, ….")


def test_where_no_tool_may_be_called_none_is_offered() -> None:
    failed = CallFailure("search", "tool_choice", "no function may be called now", 0)
    *_, last = corrected(reply(BAD), failed, tool_choice="none")
    assert last["content"] == (
        "Your previous response contained an invalid tool call. The error was:\n"
        "no function may be called now."
    )


def test_a_reply_that_misses_its_format() -> None:
    schema = {"type": "object", "required": ["age"]}
    wanted = {"type": "json_schema", "json_schema": {"name": "p", "schema": schema}}
    failed = CallFailure("response_format", "x", 'missing required field "age" in the reply')
    told = corrected(reply(text="{}"), failed, response_format=wanted)
    assert told[1] == {"role": "assistant", "content": "{}"}
    assert told[2]["content"] == (
        'That answer was refused: missing required field "age" in the reply.\n'
        "Answer again, with JSON that matches the schema exactly."
    )
    again = corrected(reply(text="{}"), failed, response_format=wanted, with_schema=True)
    assert again[-1]["content"].endswith('\nThe schema is: {"type":"object","required":["age"]}')


@pytest.mark.parametrize(
    ("body", "local", "changes"),
    [
        ({}, True, [{"temperature": 0.1}, {"temperature": 0.2}, {"temperature": 0.3}]),
        ({}, False, [{}, {}, {}]),
        ({"temperature": 0.7}, False, [{"temperature": t} for t in (0.8, 0.9, 1.0)]),
        ({"temperature": 0}, True, [{"temperature": t} for t in (0.1, 0.2, 0.3)]),
        ({"temperature": 1.95}, True, [{"temperature": 2.0}] * 3),
        ({"temperature": "hot"}, True, [{}, {}, {}]),
        ({"temperature": 0.7, "seed": 0}, True, [{"seed": 1}, {"seed": 2}, {"seed": 3}]),
        ({"seed": 2**31 - 1}, False, [{"seed": 2**31 - 1 - n} for n in (1, 2, 3)]),
        ({"seed": -1}, True, [{}, {}, {}]),
        ({"seed": "x"}, True, [{}, {}, {}]),
    ],
    ids=str,
)
def test_a_little_other_sampling(body: Json, local: bool, changes: list[Json]) -> None:
    made = [correction.other_sampling(body, n, local=local) for n in (1, 2, 3)]
    assert made == changes


# Within the request of an attempt


def settings(tier: Json | None = None, **rules: Any) -> Settings:
    tiers = {**DEFAULT_TIERS, "fast": {"model": "fast", **(tier or {})}}
    return Settings(tiers=tiers, reliability={"tool_validation": rules})  # type: ignore[arg-type]


def body_of(retry: Retry, verdict: Any = None, tier: Json | None = None, **rules: Any) -> Json:
    whole = exchange(client_request(messages=[USER], tools=TOOLS))
    whole.outcomes.append(Outcome("fast", verdict or InvalidToolCall((FAILED,)), reply=reply(BAD)))
    whole.steps.append(retry)
    return build(whole, settings(tier, **rules)).body


@pytest.mark.parametrize(
    ("retry", "verdict", "temperature"),
    [
        (Retry("tool_validation_failure", 2, correct=False), None, 0.2),
        (Retry("output_truncated", 1, last=True), truncated("unseen"), 0.1),
    ],
)
def test_a_retry_without_correction_differs_only_in_its_sampling(
    retry: Retry, verdict: Any, temperature: float
) -> None:
    body = body_of(retry, verdict)
    assert body["messages"] == [USER]
    assert body["temperature"] == temperature


def test_settings_reach_the_correction() -> None:
    retry = Retry("tool_validation_failure", 3, correct=True, last=True)
    body = body_of(retry, correction_role="system")
    assert body["messages"][0]["role"] == "system"
    assert "must match" in body["messages"][0]["content"]
    body = body_of(retry, tier={"hint_placement": "tool_result"})
    assert body["messages"][-1]["role"] == "tool"
    assert body_of(retry, tier={"params": {"temperature": 0.5}})["temperature"] == 0.8
    seeded = body_of(retry, tier={"params": {"seed": 4}})
    assert "temperature" not in seeded
    assert seeded["seed"] == 7, "the same prompt with the same seed is the same mistake again"


def test_of_several_choices_each_call_is_told_its_own_failure() -> None:
    other = CallFailure("search", "wrong_type", "of another choice", 1, 0)
    *_, result, last = corrected(reply(BAD), FAILED, other)
    assert result["content"] == f"Error: {MISSING}."
    assert "of another choice" in last["content"]
