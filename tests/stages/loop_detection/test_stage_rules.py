"""The stage by its settings: stored windows, rules for one tool, a second opinion."""

from __future__ import annotations

from typing import Any

import pytest

from app.core.reply import Reply
from app.core.session_id import SessionId
from app.stages.loop_detection import LoopDetection
from tests.stages.loop_detection.asking import (
    NAMED,
    A,
    B,
    again,
    asked,
    hint,
    judged,
    reply_of,
    sent,
)
from tests.stages.loop_detection.histories import (
    TASK,
    Json,
    Run,
    calls,
    says,
    settings,
    step,
    steps,
    user,
)


def windowed(stage: LoopDetection, texts: list[str], session: SessionId) -> list[bool]:
    """A client that sends no transcript: which of its replies are broken."""
    window: list[bytes] = []
    broken = []
    for text in texts:
        whole = asked([user("What now?")], session)
        whole.window = tuple(window)
        sent(stage, whole)
        broken.append(judged(stage, [], says(text), whole) is not None)
        if whole.turn:
            window.append(whole.turn)
    return broken


def test_a_stored_window_serves_sessions_with_a_name() -> None:
    stage = LoopDetection(settings())
    assert windowed(stage, ["No.", "Yes.", "Yes.", "Yes."], NAMED) == [False] * 3 + [True]
    derived = SessionId("derived", "2" * 32, "2" * 32)
    assert windowed(stage, ["Yes."] * 6, derived) == [False] * 6


def test_a_client_that_sends_its_transcript_needs_no_window() -> None:
    """Its other requests (a title, say) are no turns of the same run."""
    stage = LoopDetection(settings())
    hint(stage, [TASK, *steps(A)], NAMED)
    assert windowed(stage, ["A title."] * 5, NAMED) == [False] * 5


def test_a_believed_call_takes_its_place_in_the_window() -> None:
    stage = LoopDetection(settings())
    whole = asked([user("What now?")], NAMED)
    judged(stage, [], says("Yes."), whole)
    assert whole.turn


@pytest.mark.parametrize(
    ("changes", "broken"),
    [
        ({}, [4, 5, 6]),
        ({"exempt_tools": ["search"]}, []),
        ({"duplicate_threshold": 4}, [5, 6]),
        ({"tool_calls": {"overrides": {"search": {"duplicate_threshold": 5}}}}, [5, 6]),
        (
            {
                "tool_calls": {
                    "overrides": {"search": {"duplicate_threshold": 99, "identical_hard": 6}}
                }
            },
            [6],
        ),
        ({"tool_calls": {"overrides": {"fetch": {"duplicate_threshold": 99}}}}, [4, 5, 6]),
        ({"max_period": 1}, [4, 5, 6]),
    ],
)
def test_settings_for_all_tools_and_for_one(changes: Any, broken: list[int]) -> None:
    run = Run([TASK, *steps(*[A] * 6)], **changes)
    assert [number for number, _ in run.broken] == broken


@pytest.mark.parametrize(
    ("calls_rules", "told", "broken"),
    [
        ({}, 31, 50),
        ({"frequency_warn": 10, "frequency_hard": 20}, 11, 20),
        ({"frequency_overrides": {"search": {"warn": 40, "hard": 55}}}, 41, 55),
        ({"overrides": {"search": {"frequency_warn": 5, "frequency_hard": 15}}}, 6, 15),
        ({"frequency_hard": 5}, 6, 12),  # of the last ten calls none may have brought anything
    ],
)
def test_how_often_a_tool_may_be_called(calls_rules: Any, told: int, broken: int) -> None:
    made = [("search", {"query": str(n)}, "nothing") for n in range(60)]
    run = Run([TASK, *steps(*made)], tool_calls=calls_rules)
    assert run.told[0] == (told, "tool_frequency")
    assert run.broken[0] == (broken, "tool_frequency")


def test_without_require_no_progress_only_the_count_counts() -> None:
    poll = [("status", {"id": 1}, f"{n} %") for n in range(6)]
    run = Run([TASK, *steps(*poll)], tool_calls={"require_no_progress": False})
    assert run.told[0] == (4, "identical_calls")
    assert run.broken[0] == (5, "identical_calls")


@pytest.mark.parametrize(
    ("name", "arguments", "same"),
    [
        ("read_file", [{"path": "a", "start_line": n} for n in (1, 40, 120, 200, 7)], True),
        ("read_file", [{"path": "a", "start_line": 200 * n + 1} for n in range(5)], False),
        ("read_file", [{"path": str(n)} for n in range(5)], False),
        ("write_file", [{"path": "a", "content": str(n)} for n in range(5)], False),
        ("search", [{"query": "x", "limit": n} for n in range(5)], True),
        ("read_file", [{"filePath": "a", "start_line": n} for n in (1, 40, 7, 9, 2)], True),
        ("read_file", [{"absolute_path": str(n)} for n in range(5)], False),
        ("read_file", [{"target": str(n)} for n in range(5)], False),
        ("other", [{"n": n} for n in range(5)], False),
    ],
)
def test_salient_arguments(name: str, arguments: list[Json], same: bool) -> None:
    made = [(name, one, "same") for one in arguments]
    run = Run([TASK, *steps(*made)], tool_calls={"key": "salient"})
    assert bool(run.broken) is same
    assert not Run([TASK, *steps(*made)]).broken


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


def test_a_loop_is_more_than_a_doubt() -> None:
    stage = LoopDetection(settings(second_opinion=True))
    verdict = judged(stage, [TASK, *steps(A, A, A)], again(A))
    assert verdict is not None
    assert not verdict.doubt
