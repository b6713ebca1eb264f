"""Each row of the table in ``next_step.py``: what has happened, the latest verdict, the step."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from mlx_stack_proxy.driver.next_step import ROWS, kind_of, next_step
from mlx_stack_proxy.driver.rules import ANSWER_DIRECTLY, GO_ON
from mlx_stack_proxy.driver.situation import Situation
from mlx_stack_proxy.engine.steps import Deliver, DeliverEarlier, Fail, Move, PassOn, Retry, Step
from mlx_stack_proxy.engine.tier_view import TierView
from mlx_stack_proxy.engine.verdicts import Cut, Failure, empty, truncated
from mlx_stack_proxy.settings_source import from_mapping
from tests.driver.stepping import (
    AGAIN,
    BACK_OFF,
    BUSY,
    CLIENTS,
    CORRECTED,
    DOUBT,
    DOUBTED_LOOP,
    EMPTY,
    FAILED,
    IN_RESULT,
    INVALID,
    INVALID_REASON,
    LOOP,
    NO_BUDGET,
    OURS,
    OVERFLOW,
    REFUSED,
    SECOND,
    SHED,
    SILENT,
    SLIP,
    TEXT,
    THIRD,
    THOUGHT,
    TIMEOUT,
    Story,
    told,
)
from tests.driver.stepping import TRUNCATED as THINKING

SETTINGS = from_mapping({"reliability": {"escalation": {"max_retries_before_escalate": 1}}})
HINTED = replace(LOOP, hint="Stop.", confirmable=True, calls=(("wait", "{}"),))
OTHER_CALL, ENDLESS = replace(HINTED, calls=(("wait", "[]"),)), replace(HINTED, confirmable=False)
UNSEEN = truncated("unseen")
ENDED, PARROTED = empty("ended"), empty("parroted")
MORE = Retry("empty_response", 1, last=True, hint=GO_ON)
PLAIN = Retry("empty_response", 1, last=True, plain=True)
OWN = replace(CLIENTS, fault="server")
LONG = "context_overflow"

TABLE: list[tuple[str, Story, Step | type[Step]]] = [
    ("ended early", (Cut("max_output_tokens", "length"),), Deliver()),
    ("doubted repetition", (DOUBTED_LOOP,), Move("standard", "loop_detected")),
    ("doubted repetition", (TEXT, DOUBTED_LOOP), Deliver()),
    ("doubted, by the tier's habit", (SLIP,), Move("standard", INVALID_REASON)),
    ("doubted, by the tier's habit", (TEXT, SLIP), CORRECTED),
    ("doubted reply", (DOUBT,), CORRECTED),
    ("doubted reply", (INVALID, CORRECTED, DOUBT), Deliver()),
    ("second opinion failed", (SLIP, SECOND, FAILED), DeliverEarlier(0)),
    ("second opinion failed", (DOUBT, CORRECTED, DOUBT), Move("standard", INVALID_REASON)),
    ("second opinion failed", (TEXT, DOUBT, CORRECTED, DOUBT), DeliverEarlier(0)),
    ("second opinion failed", (DOUBT, CORRECTED, DOUBT, SECOND, DOUBT), DeliverEarlier(0)),
    ("second opinion failed", (FAILED, BACK_OFF, DOUBTED_LOOP, SECOND, LOOP), DeliverEarlier(1)),
    ("bad call", (INVALID,), replace(CORRECTED, last=True)),
    ("bad call", (INVALID, CORRECTED, INVALID), Move("standard", INVALID_REASON)),
    ("bad call", (FAILED, BACK_OFF, INVALID), Move("standard", INVALID_REASON)),
    ("bad call", (TEXT, INVALID, CORRECTED, INVALID), Fail),
    ("loop", (HINTED,), Move("standard", "loop_detected", "Stop.")),
    ("loop", (TEXT, HINTED), Move("standard", "loop_detected", "Stop.")),
    ("loop", (TEXT, HINTED, SECOND, LOOP), Fail),
    ("loop", (HINTED, SECOND, HINTED), Deliver()),
    ("loop", (HINTED, SECOND, OTHER_CALL), Move("longctx", "loop_detected", "Stop.")),
    ("loop", (HINTED, SECOND, ENDLESS), Move("longctx", "loop_detected", "Stop.")),
    ("loop", (FAILED, THIRD, HINTED), Retry("loop_detected", 1, last=True, hint="Stop.")),
    ("loop", (FAILED, THIRD, HINTED, Retry("loop_detected", 1), HINTED), Fail),
    ("loop", (HINTED, THIRD, LOOP), Retry("loop_detected", 1, last=True)),
    ("loop", (replace(HINTED, confirmed=True),), Deliver()),
    ("cut, and next to all lost", (UNSEEN,), Move("standard", "output_truncated")),
    ("cut, and next to all lost", (FAILED, THIRD, UNSEEN), AGAIN),
    ("cut, and next to all lost", (TEXT, UNSEEN), Deliver()),
    ("cut, and next to all lost", (FAILED, THIRD, UNSEEN, AGAIN, UNSEEN), Deliver()),
    ("cut while it thought", (THINKING,), replace(AGAIN, hint=ANSWER_DIRECTLY)),
    ("cut while it thought", (THINKING, AGAIN, THINKING), Move("standard", "output_truncated")),
    ("cut while it thought", (FAILED, THIRD, THINKING, AGAIN, THINKING), Fail),
    ("cut while it thought", (TEXT, THINKING), Fail),
    ("empty reply", (EMPTY,), Retry("empty_response", 1, last=True)),
    ("empty reply", (EMPTY, Retry("empty_response", 1), EMPTY), Move("standard", "empty_response")),
    ("empty reply", (TEXT, EMPTY), Fail),
    ("nothing after a tool's result", (ENDED,), MORE),
    ("nothing after a tool's result", (ENDED, MORE, ENDED), Move("standard", "empty_response")),
    ("nothing after a tool's result", (ENDED, MORE, ENDED, SECOND, ENDED), Deliver()),
    ("nothing after a tool's result", (ENDED, THIRD, ENDED), Deliver()),
    ("nothing after a tool's result", (TEXT, ENDED), Deliver()),
    ("nothing after a tool's result", (DOUBTED_LOOP, SECOND, ENDED), MORE),
    ("second opinion failed", (DOUBTED_LOOP, SECOND, EMPTY), DeliverEarlier(0)),
    ("second opinion failed", (DOUBT, CORRECTED, ENDED), DeliverEarlier(0)),
    ("our own words", (PARROTED,), PLAIN),
    ("our own words", (HINTED, Retry("loop_detected", 1, hint="Stop."), PARROTED), Move),
    ("our own words", (PARROTED, PLAIN, PARROTED), Move("standard", "empty_response")),
    ("our own words", (TEXT, PARROTED), Deliver()),
    ("server_error", (FAILED,), BACK_OFF),
    ("server_error", (FAILED, BACK_OFF, FAILED), Move("standard", "server_error")),
    (
        "server_error",
        (HINTED, SECOND, FAILED, BACK_OFF, FAILED),
        Move("longctx", "server_error", "Stop."),
    ),
    ("server_error", (FAILED, THIRD, FAILED, BACK_OFF, FAILED), Fail),
    ("server_error", (FAILED, SECOND, FAILED, BACK_OFF, FAILED), Move("longctx", "server_error")),
    ("server_error", (replace(FAILED, final=True),), Move("standard", "server_error")),
    ("server_error", (replace(FAILED, retry_after=30),), Move("standard", "server_error")),
    ("timeout", (TIMEOUT,), Move("standard", "timeout")),
    ("timeout", (HINTED, SECOND, TIMEOUT), Move("longctx", "timeout", "Stop.")),
    ("timeout", (TIMEOUT, THIRD, TIMEOUT), Retry("timeout", 1, last=True)),
    ("timeout", (TIMEOUT, THIRD, replace(TIMEOUT, final=True)), Fail),
    ("silent, though its server answers", (SILENT,), Move("standard", "timeout")),
    ("silent, though its server answers", (SILENT, THIRD, SILENT), Fail),
    ("no connection", (REFUSED,), Fail),
    ("tier_busy", (BUSY,), Move("standard", "tier_busy")),
    ("tier_busy", (HINTED, SECOND, BUSY), Move("longctx", "tier_busy", "Stop.")),
    ("other", (SHED,), Fail),
    ("prompt too long", (OVERFLOW,), Move("longctx", "context_overflow")),
    ("prompt too long", (FAILED, THIRD, OVERFLOW), PassOn),
    ("prompt too long", (HINTED, SECOND, OVERFLOW), Move("longctx", "context_overflow", "Stop.")),
    (
        "prompt too long",
        (FAILED, THIRD, replace(OVERFLOW, status=500)),
        PassOn(400, OVERFLOW.headers, OVERFLOW.body),
    ),
    ("prompt too long", (FAILED, THIRD, replace(OVERFLOW, status=None, body=b"")), Fail),
    ("client's fault", (CLIENTS,), PassOn(400, CLIENTS.headers, CLIENTS.body)),
    ("client's fault", (INVALID, CORRECTED, CLIENTS), Move("standard", INVALID_REASON)),
    ("client's fault", (OURS,), IN_RESULT),
    ("server's own limit", (OWN,), Move("standard", "server_error")),
    ("server's own limit", (OWN, SECOND, OWN), PassOn),
    ("server's own limit", (INVALID, CORRECTED, OWN), Move("standard", INVALID_REASON)),
    ("server's own limit", (TEXT, OWN), PassOn),
    ("prompt too long", (replace(OVERFLOW, room=2000),), Retry(LONG, 1, most_output=2000)),
    ("prompt too long", (replace(OVERFLOW, room=300),), Move("longctx", LONG)),
    (
        "prompt too long",
        (FAILED, THIRD, replace(OVERFLOW, room=300)),
        Retry(LONG, 1, most_output=300),
    ),
    ("prompt too long", (FAILED, THIRD, replace(OVERFLOW, inferred=True)), Fail),
    (
        "our words refused",
        (replace(OURS, fault="ours"),),
        IN_RESULT,
    ),
    ("tier without budget", (NO_BUDGET,), Move("standard", "budget_exceeded")),
    ("refused by us", (replace(NO_BUDGET, kind="rejected"),), Fail),
]
SECOND_TRY, THIRD_TRY = (Retry(INVALID_REASON, number, correct=True) for number in (2, 3))
BY_DEFAULT: list[tuple[Story, Step]] = [
    ((INVALID,), CORRECTED),
    ((INVALID, CORRECTED, INVALID), SECOND_TRY),
    ((INVALID, CORRECTED, INVALID, SECOND_TRY, INVALID), replace(THIRD_TRY, last=True)),
    ((THOUGHT, INVALID, CORRECTED, THOUGHT, INVALID), SECOND_TRY),
    ((INVALID, CORRECTED, INVALID, SECOND_TRY, FAILED), replace(BACK_OFF, last=True)),
    (
        (INVALID, CORRECTED, INVALID, SECOND_TRY, FAILED, BACK_OFF, INVALID),
        Move("standard", INVALID_REASON),
    ),
]
VIEW = TierView(proven=frozenset({"longctx"}))


@pytest.mark.parametrize(("row", "story", "expected"), TABLE)
def test_what_follows(row: str, story: Story, expected: Step | type[Step]) -> None:
    whole = told(*story)
    verdict = whole.outcomes[-1].verdict
    assert verdict is not None
    found = next_step(whole, SETTINGS, VIEW, now=1.0)
    assert kind_of(Situation(whole, verdict, SETTINGS, VIEW, 1.0)) == row
    if isinstance(expected, type):
        assert isinstance(found, expected)
    else:
        assert found == expected


@pytest.mark.specification(87)
@pytest.mark.parametrize(("story", "expected"), BY_DEFAULT)
def test_retries_on_a_tier_are_three_whatever_failed(story: Story, expected: Step) -> None:
    assert next_step(told(*story), from_mapping({}), VIEW, now=1.0) == expected


def test_every_row_is_tried() -> None:
    elsewhere = {"loop, an error at once", "guided form refused"}  # the latter: test_guiding.py
    spoken_for = {row for row, _, _ in TABLE} | elsewhere
    assert spoken_for == set(ROWS)


def test_on_break_error_asks_nobody() -> None:
    settings = from_mapping({"reliability": {"loop_detection": {"on_break": "error"}}})
    assert isinstance(next_step(told(HINTED), settings, VIEW, now=1.0), Fail)


@pytest.mark.parametrize("unknown", ["budget_exceeded", "tier_degraded"])
def test_a_reason_without_a_row_of_its_own_leads_to_the_next_tier(unknown: str) -> None:
    failed = Failure(unknown, "no")  # type: ignore[arg-type]
    assert next_step(told(failed), SETTINGS, VIEW, now=1.0) == Move("standard", unknown)
