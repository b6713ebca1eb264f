"""What comes after a loop: another tier with a hint, a last try, belief, or an error."""

from __future__ import annotations

from dataclasses import replace

import pytest

from mlx_stack_proxy.engine.steps import Deliver, Fail, Move, Retry
from mlx_stack_proxy.engine.verdicts import UpstreamFailed
from tests.engine.stepping import (
    BUSY,
    FAILED,
    LOOP,
    OVERFLOW,
    SPENT,
    TIMEOUT,
    after,
    climbing,
    step,
)

HINTED = replace(LOOP, hint="Do not call it again.", calls=(("wait", "{}"),), confirmable=True)


@pytest.mark.parametrize("verdict", [FAILED, TIMEOUT, BUSY, replace(OVERFLOW, window=100)])
def test_a_loops_hint_goes_on_with_the_request(verdict: UpstreamFailed) -> None:
    there = {"tier": "standard", "retried": SPENT}
    own = {"model_failure": HINTED, "failed_on": "fast"}
    found = step(climbing("loop_detected", "server_error", **there, **own), verdict)
    assert isinstance(found, Move)
    assert (found.tier, found.hint) == ("longctx", HINTED.hint)
    found = step(climbing("loop_detected", "server_error", **there), verdict)
    assert isinstance(found, Move) and found.hint == ""


def test_a_loop_that_two_tiers_agreed_on_is_delivered() -> None:
    confirmed = replace(HINTED, confirmable=True, confirmed=True)
    assert step(after("loop_detected"), confirmed) == Deliver()
    assert step(climbing("loop_detected"), confirmed) == Deliver()
    exhausted = replace(confirmed, confirmable=False)
    assert isinstance(step(after("loop_detected"), exhausted), Retry)
    assert isinstance(
        step(after("loop_detected"), confirmed, loop_detection={"on_break": "error"}), Fail
    )


def test_a_broken_loop_goes_up_with_the_hint() -> None:
    found = step(climbing("loop_detected"), HINTED)
    assert found == Move("standard", "loop_detected", hint="Do not call it again.")


def test_two_tiers_that_want_the_same_call_are_believed() -> None:
    whole = climbing("loop_detected", tier="standard", model_failure=HINTED, failed_on="fast")
    assert step(whole, HINTED) == Deliver()
    assert step(whole, replace(HINTED, confirmable=False)) == Move(
        "longctx", "loop_detected", hint="Do not call it again."
    )
    assert isinstance(step(whole, replace(HINTED, calls=(("wait", "[]"),))), Move)


def test_where_no_tier_is_left_the_same_one_has_one_last_try() -> None:
    hint = "Do not call it again."
    whole = after("loop_detected")
    assert step(whole, HINTED) == Retry("loop_detected", 1, last=True, hint=hint)
    again = after(
        "loop_detected", retried={"loop_detected": 1}, model_failure=HINTED, failed_on="fast"
    )
    assert isinstance(step(again, HINTED), Fail)


def test_on_break_error_is_an_error() -> None:
    found = step(climbing("loop_detected"), HINTED, loop_detection={"on_break": "error"})
    assert isinstance(found, Fail) and found.error.type == "loop_detected"
