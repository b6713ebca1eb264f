"""The stage: hints once, breaks again, sessions apart; its settings; a second opinion."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from mlx_stack_proxy.engine.session_id import SessionId
from mlx_stack_proxy.loop_detection import detectors
from mlx_stack_proxy.loop_detection.stage import LoopDetection
from mlx_stack_proxy.settings import Settings
from mlx_stack_proxy.state.store import SessionState
from mlx_stack_proxy.wire.reply import Reply
from tests.engine.exchanges import client_request, exchange, incidents
from tests.loop_detection.asking import NAMED, A, B, again, asked, hint, judged, reply_of, sent
from tests.loop_detection.histories import (
    TASK,
    Json,
    answers,
    calls,
    says,
    settings,
    step,
    steps,
    user,
)
from tests.loop_detection.played import Played


@pytest.mark.parametrize("depth", [300, 900, 1020, 5000])
def test_deeply_nested_arguments_are_read_like_any(depth: int) -> None:
    stage = LoopDetection(settings())
    message = calls(("look", {}))
    nested = '{"a":' + "[" * depth + "]" * depth + "}"
    message["tool_calls"][0]["function"]["arguments"] = nested
    messages = [TASK, *[message, *answers(message, "ok")] * 3]
    assert judged(stage, messages, message) is not None
    other = copy.deepcopy(message)
    other["tool_calls"][0]["function"]["arguments"] = nested.replace('"a"', '"b"')
    assert judged(stage, messages, other) is None


def test_a_hint_is_given_once_for_a_pattern_and_again_when_it_comes_back() -> None:
    stage = LoopDetection(settings())
    messages = [TASK, *steps(A, A, A)]
    whole = asked(messages)
    for _ in range(2):
        assert sent(stage, whole) != messages, "the same request again, as in a retry"
    assert incidents(whole) == [("loop_warning", ("repetition", "warning"))], "counted once"
    assert "Stop calling search with the same arguments: 3 times" in hint(stage, messages)
    messages += steps(A)
    assert hint(stage, messages) == ""
    messages += steps(B, ("list_files", {}, "a b c"), A, A)
    assert "search" in hint(stage, [*messages, *steps(A)])


def test_what_the_verdict_says() -> None:
    stage = LoopDetection(settings())
    messages = [TASK, *steps(A, A, A)]
    whole = asked(messages)
    verdict = judged(stage, messages, again(A), whole)
    assert verdict is not None
    assert (verdict.detector, verdict.repeats) == ("repetition", 3)
    assert verdict.calls == (("search", '{"query":"quokka"}'),)
    assert verdict.confirmable
    assert "search" in verdict.hint
    assert len(verdict.pattern) == 16
    assert whole.notes["Loop"] == "circuit_break;detector=repetition"
    assert incidents(whole) == [("loop_break", ("repetition", "circuit_break"))]
    messages += steps(A)
    fifth = judged(stage, messages, again(A))
    assert fifth is not None and not fifth.confirmable, "nobody is believed then"


EDIT: Json = {"old_string": "a", "new_string": "b"}


@pytest.mark.parametrize(
    ("told", "made"),
    [
        (EDIT, EDIT),
        ({**EDIT, "replace_all": False}, EDIT),  # Claude Code 2.1.332 tells it so
        ({**EDIT, "replace_all": False}, {**EDIT, "replace_all": False}),
        (EDIT, {**EDIT, "replace_all": True}),
        ({**EDIT, "replace_all": True}, EDIT),
    ],
)
def test_an_argument_that_is_its_default_may_be_left_out_of_the_same_call(
    told: Json, made: Json
) -> None:
    properties = {name: {"type": "string"} for name in EDIT}
    properties["replace_all"] = {"type": "boolean", "default": False}
    schema = {"type": "object", "properties": properties}
    tools = [{"type": "function", "function": {"name": "Edit", "parameters": schema}}]
    failed = ("Edit", told, "Found 2 matches")
    messages = [TASK, *steps(failed, failed, failed)]
    whole = exchange(client_request(messages=messages, tools=tools), session=NAMED)
    verdict = judged(LoopDetection(settings()), messages, calls(("Edit", made)), whole)
    same = made.get("replace_all", False) == told.get("replace_all", False)
    assert (verdict is not None) == same


@pytest.mark.parametrize("parameters", [None, [], {"properties": []}, {"properties": {"a": 1}}])
def test_a_schema_that_says_no_default_is_none(parameters: Any) -> None:
    function = {"name": "search", "parameters": parameters}
    tools = [{"type": "function", "function": function}, {"type": "web_search"}]
    messages = [TASK, *steps(A, A, A)]
    whole = exchange(client_request(messages=messages, tools=tools), session=NAMED)
    assert judged(LoopDetection(settings()), messages, again(A), whole) is not None


def test_after_a_break_the_same_breaks_at_once_and_another_counts_from_zero() -> None:
    stage = LoopDetection(settings(on_break="error", second_opinion=False))
    messages = [TASK, *steps(A, A, A)]
    assert judged(stage, messages, again(A)) is not None
    assert stage.open(asked(messages)).hold_whole()
    assert judged(stage, messages, again(A)) is not None
    assert judged(stage, messages, again(B)) is None
    assert judged(stage, [*messages, *steps(B)], again(B)) is None
    assert judged(stage, [*messages, *steps(B)], again(A)) is None, "something else was done"
    nudged = [*messages, user("Look once more, please.")]
    assert judged(stage, nudged, again(A)) is None, "the user wants it so"


def test_a_stopped_agent_that_is_told_to_go_on_begins_a_new_task() -> None:
    stage = LoopDetection(settings(on_break="stop", second_opinion=False))
    messages = [TASK, *steps(A, A, A)]
    whole, reply = asked(messages), reply_of(again(A))
    state = stage.open(whole)
    assert state.judge(reply) is None
    assert state.remarks.reply_notes["Loop"] == "circuit_break;detector=repetition"
    stopped = [*messages, says(reply.choices[0].text), user("Go on.")]
    assert judged(stage, stopped, again(A)) is None
    assert judged(stage, stopped, again(A)) is None


def test_a_stop_takes_the_loop_out_of_every_choice() -> None:
    stage = LoopDetection(settings(on_break="stop"))
    reply = reply_of(again(A), again(B), again(A))
    assert stage.open(asked([TASK, *steps(A, A, A)])).judge(reply) is None
    assert [bool(choice.tool_calls) for choice in reply.choices.values()] == [False, True, False]
    assert reply.mended == {0, 2}


@pytest.mark.parametrize(
    "written",
    [
        'Action: search\nAction Input: {"query": "quokka"}',
        '<tool_call>{"name": "search", "arguments": {"query": "quokka"}}</tool_call>',
        "<code>\nsearch(query='quokka')\n</code>",
        "<search>\n<query>quokka</query>\n</search>",
        "```python\nsearch('quokka')\n```",
    ],
)
def test_a_stop_takes_out_what_is_written_as_text(written: str) -> None:
    """An agent that reads its calls out of the text must not find one there."""
    stage = LoopDetection(settings(on_break="stop"))
    text = f"Thought: I should search.\n{written}"
    messages = [TASK]
    for _ in range(3):
        messages += [says(text), user("Observation: nothing found")]
    reply = reply_of(says(text))
    assert stage.open(asked(messages)).judge(reply) is None
    assert reply.choices[0].text.startswith("[Stopped: the same answer is part of a loop")


def test_what_two_tiers_agreed_on_is_believed_until_the_limit() -> None:
    """The broken reply was delivered after all: the transcript shows it."""
    stage = LoopDetection(settings(tool_calls={"identical_hard": 7}))
    messages = [TASK, *steps(A, A, A)]
    first = judged(stage, messages, again(A))
    assert first is not None and not first.confirmed
    confirmed = []
    for _ in range(4):
        messages += steps(A)
        whole = asked(messages)
        verdict = judged(stage, messages, again(A), whole)
        assert verdict is not None
        confirmed.append((verdict.confirmed, whole.notes["Loop"].partition(";")[0]))
    assert confirmed == [(True, "warning")] * 2 + [(False, "circuit_break")] * 2


def test_forgetting_a_session() -> None:
    stage = LoopDetection(settings(on_break="error"))
    messages = [TASK, *steps(A, A, A)]
    hash = asked(messages).request.session.hash
    assert hint(stage, messages)
    assert not hint(stage, [*messages, *steps(A)])
    stage.forget(hash)
    assert hint(stage, [*messages, *steps(A)])


@pytest.mark.parametrize("session", [None, NAMED])
def test_a_script_that_starts_over_begins_a_new_run(session: SessionId | None) -> None:
    """One with a name asks for titles, too, meanwhile: only DELETE makes it begin anew."""
    stage = LoopDetection(settings())
    messages = [TASK, *steps(A)]

    def doubts() -> bool:
        verdict = judged(stage, messages, again(A), asked(messages, session))
        if verdict is not None:
            memory = stage.sessions.of(asked(messages, session).request.session.hash)
            memory.notes["question", verdict.detector, verdict.place] = 2
        return verdict is not None

    assert [doubts(), doubts()] == [True, False]
    sent(stage, asked([TASK], session))
    assert doubts() is (session is None)


def session(first_seen: float, turns: int) -> SessionState:
    return SessionState("", first_seen=first_seen, turns=turns)


NEW, KNOWN = session(4.0, 0), session(5.0, 1)


@pytest.mark.parametrize(
    ("began", "forgotten"),
    [
        ((None, None), False),  # the store could not be asked
        ((NEW, KNOWN), False),  # its first exchange was written meanwhile
        ((NEW, KNOWN, NEW), False),  # and was on its way when this one began
        ((KNOWN, KNOWN), False),
        ((KNOWN, None), False),
        ((KNOWN, session(3.0, 1)), False),  # the clock was set back
        (
            (KNOWN, session(9.0, 0)),
            True,
        ),  # deleted, maybe by another process, or idle
        ((KNOWN, session(9.0, 1)), True),  # and used again since
    ],
)
def test_a_session_that_the_store_forgot_is_forgotten(
    began: tuple[SessionState | None, ...], forgotten: bool
) -> None:
    stage = LoopDetection(settings())
    messages = [TASK, *steps(A, A, A)]
    hints = []
    for at in began:
        whole = asked(messages, NAMED)
        whole.session_start = at
        sent(stage, whole)
        hints.append("Loop" in whole.notes)
        messages += steps(A)
    assert hints == [True, *[False] * (len(began) - 2), forgotten]


@pytest.mark.parametrize("key", ["max_sessions", "max_tracked_threads"])
def test_what_is_remembered_is_bounded(key: str) -> None:
    """Also after a reset of all sessions."""
    stage = LoopDetection(settings(**{key: 3}))
    messages = [TASK, *steps(A, A, A)]
    for _ in range(2):
        for n in range(9):
            session = SessionId("x", f"{n:032}", f"{n:032}")
            hint(stage, messages, session)
        assert len(stage.sessions) == 3
        stage.forget(None)
        assert not stage.sessions


def test_what_may_be_a_poll_is_broken_once_a_run_in_a_text_too() -> None:
    """An agent that writes its commands into its text was broken at each turn."""
    stage = LoopDetection(settings())
    reply = says("Once more:\n```\nmake status\n```")
    messages, broken = [TASK], []
    for number in range(20):
        verdict = judged(stage, messages, reply)
        if verdict is not None and not (verdict.confirmable and verdict.confirmed):
            broken.append(number)
        messages += [reply, user(f"{number} % done")]
    assert broken == [12]


# By its settings

DERIVED = SessionId("derived", "2" * 32, "2" * 32)
LONG = [again(A)] * 9


@pytest.mark.parametrize(
    ("replies", "session", "changes", "question", "broken"),
    [
        ([again(B), *LONG[:4]], NAMED, {}, "What now?", [4]),
        (LONG, DERIVED, {}, "What now?", []),
        (LONG, NAMED, {}, "Look at {}.", []),  # another question begins another count
        (LONG, NAMED, {"window_size": 2}, "What now?", []),  # no more turns are kept
    ],
)
def test_an_agent_without_a_transcript_whose_session_has_a_name(
    replies: list[Json], session: SessionId, changes: Json, question: str, broken: list[int]
) -> None:
    """It asks the same each time, and sends no transcript."""
    stage = LoopDetection(settings(**changes))
    found = []
    for number, reply in enumerate(replies):
        whole = asked([user(question.format(number // 3))], session, f"r{number}")
        if judged(stage, [], reply, whole) is not None:
            found.append(number)
    assert found == broken


def test_a_client_that_sends_its_transcript_is_judged_by_that() -> None:
    """Its other requests (a title, say) are no turns of the same run."""
    stage = LoopDetection(settings())
    hint(stage, [TASK, *steps(A)], NAMED)
    for number in range(5):
        whole = asked([user("What now?")], NAMED, f"r{number}")
        assert judged(stage, [], again(A), whole) is None


@pytest.mark.parametrize(
    ("changes", "broken"),
    [
        ({}, [4, 5, 6]),
        ({"exempt_tools": ["search"]}, []),
        ({"duplicate_threshold": 4}, [5, 6]),
        ({"tool_calls": {"overrides": {"search": {"duplicate_threshold": 5}}}}, [6]),
        ({"tool_calls": {"overrides": {"fetch": {"duplicate_threshold": 99}}}}, [4, 5, 6]),
    ],
)
def test_settings_for_all_tools_and_for_one(changes: Any, broken: list[int]) -> None:
    run = Played([TASK, *steps(*[A] * 6)], **changes)
    assert [number for number, _ in run.broken] == broken


@pytest.mark.parametrize(
    ("changes", "warned", "broken"),
    [({}, 4, 4), ({"duplicate_threshold": 2}, 4, 3), ({"warn_threshold": 3}, 5, 4)],
)
def test_answers_without_calls_count_although_a_short_transcript_is_not_read(
    changes: Any, warned: int, broken: int
) -> None:
    messages = [TASK, *[says("I will now fix it."), user("Go on.")] * 5]
    run = Played(messages, **changes)
    assert (run.hints[0], run.broken[0]) == ((warned, "repetition"), (broken, "repetition"))
    assert run.held[0] == broken


# A second opinion


def doubted(messages: list[Json], message: Json, **changes: Any) -> bool:
    stage = LoopDetection(settings(**{"second_opinion": True, **changes}))
    verdict = judged(stage, messages, message)
    assert verdict is None or verdict.doubt is (verdict.repeats == 2)
    return verdict is not None and verdict.doubt


def test_a_call_whose_result_has_just_come_is_doubted_where_that_is_wanted() -> None:
    messages = [TASK, *steps(B, A)]
    assert doubted(messages, again(A))
    assert not doubted(messages, again(A), second_opinion=False)
    assert not doubted(messages, again(A), exempt_tools=["search"])
    assert not doubted(messages, again(B)), "another call came in between"
    assert not doubted(messages, calls(("search", {"query": "wombat"})))
    assert not doubted(messages, calls(A[:2], B[:2])), "it does something new, too"
    assert not doubted(messages, says("Nothing was found."))
    assert not doubted([*messages, user("Again, please.")], again(A))


def test_a_poll_whose_answer_moves_is_not_doubted() -> None:
    poll = ("job_status", {"id": 7})
    assert doubted([TASK, *step(*poll, "10 %")], calls(poll))
    assert not doubted([TASK, *step(*poll, "10 %"), *step(*poll, "20 %")], calls(poll))
    assert doubted([TASK, *step(*poll, "10 %"), *step(*poll, "10 %")], calls(poll))
    moved = [TASK, *step(*poll, "10 %"), *step(*poll, "20 %"), *step(*poll, "20 %")]
    assert not doubted(moved, calls(poll)), "it has moved in this wait"


@pytest.mark.parametrize("order", [(A, B), (B, A)])
def test_a_loop_in_one_choice_is_more_than_a_doubt_in_another(order: tuple[Any, Any]) -> None:
    """B, A, B, A, B, A: another B closes the loop, another A only makes the last call again."""
    stage = LoopDetection(settings(on_break="error"))
    choices = {n: reply_of(calls(one[:2])).choices[0] for n, one in enumerate(order)}
    verdict = stage.open(asked([TASK, *steps(*(B, A) * 3)])).judge(Reply(choices=choices))
    assert verdict is not None
    assert not verdict.doubt


@pytest.mark.parametrize(
    ("row", "made"),
    [
        ("repetition", [A] * 5),
        ("numbers", [("status", {}, f"{n} %") for n in range(12)]),
    ],
)
def test_each_detector_can_be_left_out_by_itself(
    row: str, made: list[tuple[str, Json, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    messages = [TASK, *steps(*made)]
    assert Played(messages).hints
    # Not `delitem`, which would put the row back at the end, and the rows' order counts.
    others = {name: find for name, find in detectors.DETECTORS.items() if name != row}
    monkeypatch.setattr(detectors, "DETECTORS", others)
    assert Played(messages).is_silent


@pytest.mark.parametrize(("placement", "role"), [("user", "user"), ("tool_result", "tool")])
def test_a_hint_stands_where_the_tiers_template_takes_it(placement: str, role: str) -> None:
    """Mistral's refuses a user message behind results, so such a tier says ``tool_result``."""
    tiers: Any = {"fast": {"model": "fast", "hint_placement": placement}}
    rules: Any = {
        "escalation": {"chain": ["fast"]},
        "token_budget": {"downgrade_tier": "fast"},
    }
    messages = [TASK, *steps(A, A, A)]
    new = sent(LoopDetection(Settings(tiers=tiers, reliability=rules)), asked(messages))
    assert new[-1]["role"] == role
    assert "Use that result" in new[-1]["content"]
    assert new[: len(messages) - 1] == messages[:-1]
    text = [TASK, *[one for _ in range(3) for one in (says("Action: a"), user("Result: b"))]]
    new = sent(LoopDetection(Settings(tiers=tiers, reliability=rules)), asked(text))
    assert new[:-1] == text[:-1]
    assert new[-1]["content"].startswith("Result: b\n\n"), "an observation is the user's"
