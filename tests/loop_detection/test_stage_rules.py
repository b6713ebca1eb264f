"""The stage by its settings: stored windows, rules for one tool, a second opinion."""

from __future__ import annotations

from typing import Any

import pytest

from mlx_stack_proxy.engine.session_id import SessionId
from mlx_stack_proxy.loop_detection import detectors
from mlx_stack_proxy.loop_detection.stage import LoopDetection
from mlx_stack_proxy.settings import Settings
from mlx_stack_proxy.wire.reply import Reply
from tests.loop_detection.asking import NAMED, A, B, again, asked, hint, judged, reply_of, sent
from tests.loop_detection.histories import TASK, Json, calls, says, settings, step, steps, user
from tests.loop_detection.played import Played

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
