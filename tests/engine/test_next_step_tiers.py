"""The rules for what follows an attempt if there is another tier to move to."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, get_args

import pytest

from mlx_stack_proxy.engine.decisions import after_waiting
from mlx_stack_proxy.engine.exchange import Exchange
from mlx_stack_proxy.engine.outcome import Committed
from mlx_stack_proxy.engine.request import Controls, Route
from mlx_stack_proxy.engine.steps import Deliver, Fail, Move, PassOn, Retry, Step
from mlx_stack_proxy.engine.verdicts import (
    EmptyResponse,
    Rejected,
    UpstreamFailed,
    Verdict,
)
from mlx_stack_proxy.errors import ProxyError
from mlx_stack_proxy.escalation.ladder import TierView
from mlx_stack_proxy.settings import EscalationReason
from mlx_stack_proxy.settings_source import from_mapping
from tests.engine.stepping import (
    BUSY,
    CHAIN,
    FAILED,
    INVALID,
    INVALID_REASON,
    LOOP,
    OVERFLOW,
    REFUSED,
    SPENT,
    TIMEOUT,
    TRUNCATED,
    after,
    climbing,
    error_after,
    running,
    step,
)

EMPTY = EmptyResponse()
NO_TOOLS = UpstreamFailed("server_error", "no tools", status=400, final=True, lacks="tools")
RATE_LIMITED = UpstreamFailed("server_error", "slow down", status=429, retry_after=30)


@pytest.mark.parametrize(
    ("verdict", "reason"),
    [
        (INVALID, "tool_validation_failure"),
        (FAILED, "server_error"),
        (TIMEOUT, "timeout"),
        (EMPTY, "empty_response"),
        (TRUNCATED, "output_truncated"),
        (LOOP, "loop_detected"),
        (BUSY, "tier_busy"),
        (NO_TOOLS, "server_error"),
        (RATE_LIMITED, "server_error"),
    ],
)
def test_what_retries_did_not_help_goes_up(verdict: Verdict, reason: str) -> None:
    whole = climbing(reason, retried=SPENT)
    text, other = Committed("Text."), Committed(other=True)
    assert step(whole, verdict) == Move("standard", reason)
    # Each thing that forbids it:
    others = [r for r in get_args(EscalationReason) if r != reason]
    for forbidden in (
        step(climbing(reason, retried=SPENT, controls=Controls(escalation=False)), verdict),
        step(whole, verdict, escalation={"enabled": False}),
        step(whole, verdict, escalation={"escalate_on": others}),
        step(whole, verdict, escalation={"max_attempts": 1}),
        step(whole, verdict, now=540.0),
        step(climbing(reason, retried=SPENT, committed=text, text_retried=True), verdict),
        step(climbing(reason, retried=SPENT, committed=other, text_retried=True), verdict),
        step(climbing(reason, retried=SPENT, tier="longctx"), verdict),
    ):
        assert isinstance(forbidden, (Fail, Deliver))


def test_the_back_off_doubles_and_heeds_what_the_server_asks_for() -> None:
    waits = []
    for done in range(3):
        found = step(climbing(retried={"server_error": done}), FAILED)
        assert isinstance(found, Retry)
        waits.append(found.after)
    assert waits == [0.25, 0.5, 1.0]
    asked = replace(FAILED, retry_after=4.0)
    found = step(climbing("server_error"), asked)
    assert isinstance(found, Retry) and found.after == 4.0


@pytest.mark.parametrize(("calls", "goes_on"), [(7, True), (8, False)])
def test_retries_leave_a_call_for_each_tier_to_come(calls: int, goes_on: bool) -> None:
    """Ten calls in all, two tiers to come."""
    found = step(climbing(*["tool_validation_failure"] * calls), INVALID)
    assert isinstance(found, Retry if goes_on else Move)


@pytest.mark.parametrize(
    ("whole", "verdict", "passed_over", "expected"),
    [
        (climbing("server_error"), FAILED, ["fast"], Move("standard", "server_error")),
        (after("server_error"), FAILED, ["fast"], Retry("server_error", 1, after=0.25)),
        (climbing("timeout"), TIMEOUT, ["standard"], Move("longctx", "timeout")),
        (climbing("timeout"), TIMEOUT, ["standard", "longctx"], Move("standard", "timeout")),
    ],
    ids=["not tried again", "unless alone", "gone past", "but not all of them"],
)
def test_a_degraded_tier(
    whole: Exchange, verdict: Verdict, passed_over: list[str], expected: Step
) -> None:
    view = TierView(passed_over=dict.fromkeys(passed_over, 9.0))
    assert step(whole, verdict, view=view) == expected


def test_a_full_queue_never_leads_to_the_cloud() -> None:
    whole = climbing("tier_busy", tiers=("fast", "premium"))
    assert isinstance(step(whole, BUSY), Fail)
    assert step(whole, TIMEOUT) == Move("premium", "timeout")


NO_TOKENS = Rejected(ProxyError(429, "budget_exceeded", "it's used up"), tier_only=True)


def test_a_tier_without_tokens_is_left_for_the_next_local_one() -> None:
    assert step(climbing(hint="a hint"), NO_TOKENS) == Move(
        "standard", "budget_exceeded", hint="a hint"
    )
    assert step(climbing(), NO_TOKENS, escalation={"escalate_on": []}) == Move(
        "standard", "budget_exceeded"
    )
    view = TierView().without(["standard"])
    assert step(climbing(), NO_TOKENS, view=view) == Move("longctx", "budget_exceeded")


def test_where_no_other_may_take_it_the_client_is_told() -> None:
    for whole in (
        climbing(tiers=("fast",)),
        climbing(tiers=("fast", "premium")),
        climbing(controls=Controls(escalation=False)),
        climbing(committed=Committed(text="Half")),
    ):
        found = step(whole, NO_TOKENS)
        assert isinstance(found, Fail), whole
        assert (found.error.status, found.error.type) == (429, "budget_exceeded")
    assert isinstance(step(climbing(), replace(NO_TOKENS, tier_only=False)), Fail)


def test_an_overflow_goes_to_a_larger_window_past_others() -> None:
    whole = climbing("context_overflow")
    assert step(whole, OVERFLOW) == Move("longctx", "context_overflow")
    last = climbing("context_overflow", tier="longctx")
    assert step(last, OVERFLOW) == PassOn(400, (), b"too long")
    told = replace(OVERFLOW, window=4096)
    view = TierView(windows={"fast": 4096})
    assert step(whole, told, view=view) == Move("standard", "context_overflow")
    # That the prompt is too long for `fast` makes `standard` no larger.
    view = TierView(windows={"fast": 1})
    assert step(whole, OVERFLOW, view=view) == Move("longctx", "context_overflow")


def test_the_clients_own_timeout_counts_where_it_is_shorter() -> None:
    whole = climbing("timeout", client_timeout=60.0)
    assert isinstance(step(whole, TIMEOUT, now=59.0), Move)
    assert isinstance(step(whole, TIMEOUT, now=60.0), Fail)


def test_only_litellm_that_is_gone_is_upstream_unavailable() -> None:
    """Not a cloud that is called directly."""
    route = Route(("fast", "premium"), direct=frozenset({"premium"}))

    def on_premium(*reasons: str) -> ProxyError:
        whole = climbing(*reasons, route=route, tier="premium")
        return error_after(whole, REFUSED)

    alone = on_premium("refused")
    assert (alone.status, alone.type) == (502, "all_tiers_failed")
    assert on_premium("timeout", "refused").status == 502
    both = on_premium("refused", "refused")
    assert (both.status, both.type) == (503, "upstream_unavailable")


def test_litellm_that_is_gone_leads_to_the_direct_cloud_alone() -> None:
    direct = Route((*CHAIN, "premium"), direct=frozenset({"premium"}))
    whole = climbing("refused", route=direct)
    assert step(whole, REFUSED) == Move("premium", "server_error")
    # Also where that is all that is left, and degraded.
    view = TierView(passed_over={"premium": 9.0})
    assert step(whole, REFUSED, view=view) == Move("premium", "server_error")


def test_a_direct_cloud_that_is_gone_leads_on() -> None:
    """LiteLLM is none the worse for it; and nobody waits for a second refusal."""
    route = Route(("premium", "longctx"), direct=frozenset({"premium"}))
    whole = climbing("refused", route=route, tier="premium")
    assert step(whole, REFUSED) == Move("longctx", "server_error")


def waited(whole: Exchange, now: float = 1.0, view: TierView | None = None, **rules: Any) -> Any:
    settings = from_mapping({"reliability": rules})
    return after_waiting(running(whole), settings, view or TierView(), now)


def test_a_tier_that_failed_while_a_request_waited_for_it_is_left() -> None:
    assert waited(climbing()) is None
    degraded = TierView(passed_over={"fast": 9.0})
    found = waited(climbing(), view=degraded)
    assert found.reason == "tier_degraded"
    assert step(climbing(), found, view=degraded) == Move("standard", "tier_degraded")
    # Whatever `escalate_on` says: it is as if the request had started past it.
    only = {"escalate_on": ["timeout"]}
    assert step(climbing(), found, view=degraded, escalation=only) == Move(
        "standard", "tier_degraded"
    )


@pytest.mark.parametrize(
    ("whole", "passed_over"),
    [
        (after(), ["fast"]),
        (climbing(controls=Controls(escalation=False)), ["fast"]),
        (climbing(committed=Committed("Let me look.")), ["fast"]),
        (climbing(tier="longctx"), ["longctx"]),
        (climbing(), CHAIN),
    ],
    ids=["one tier", "escalation off", "text is out", "the last", "all failed"],
)
def test_unless_it_is_the_last_one_standing(whole: Exchange, passed_over: list[str]) -> None:
    assert waited(whole, view=TierView(passed_over=dict.fromkeys(passed_over, 9.0))) is None


@pytest.mark.parametrize(
    ("client", "now", "goes_on"),
    [(None, 539.9, True), (None, 540.0, False), (30.0, 29.9, True), (30.0, 30.0, False)],
)
def test_none_begins_when_the_time_is_over(client: float | None, now: float, goes_on: bool) -> None:
    whole = climbing(client_timeout=client)
    found = waited(whole, now)
    assert (found is None) is goes_on
    if found is not None:
        last = step(whole, found, now)
        assert isinstance(last, Fail)
        assert (last.error.status, last.error.type) == (503, "tier_busy")
        assert last.error.retry_after


def test_nobody_waits_for_a_retry_that_could_not_begin() -> None:
    slow = replace(FAILED, retry_after=4.0)
    whole = climbing("server_error")
    assert isinstance(step(whole, slow, now=534.9), Retry)
    assert step(whole, slow, now=535.1) == Move("standard", "server_error")  # 4 s and the jitter


@pytest.mark.parametrize(
    ("own", "kind"), [(LOOP, "loop_detected"), (INVALID, "tool_validation_failed")]
)
def test_what_the_model_did_last_names_the_error(own: Verdict, kind: str) -> None:
    whole = after("loop_detected", "timeout", model_failure=own)
    error = error_after(whole, TIMEOUT)
    assert (error.status, error.type) == (422, kind)
    assert len(error.body()["error"]["attempts"]) == 2


def test_after_text_that_went_out_a_bad_call_may_still_go_up_once() -> None:
    whole = climbing(INVALID_REASON, committed=Committed("Let me look."))
    found = step(whole, INVALID, tool_validation={"max_retries": 0})
    assert found == Move("standard", INVALID_REASON, correct=True)


ANSWERED_BEFORE = TierView(proven=frozenset({"fast"}))


def test_a_call_that_hung_on_the_last_tier_is_made_once_more_where_that_has_answered() -> None:
    again = Retry("timeout", 1, last=True)
    assert step(after(), TIMEOUT, view=ANSWERED_BEFORE) == again
    off = step(climbing(), TIMEOUT, view=ANSWERED_BEFORE, escalation={"escalate_on": []})
    assert off == again, "where no other may have it, too"
    alone = step(climbing(), TIMEOUT, view=ANSWERED_BEFORE.without(["standard", "longctx"]))
    assert alone == again


@pytest.mark.parametrize(
    ("whole", "verdict", "view"),
    [
        (after(), TIMEOUT, TierView()),  # it has never answered, or failed before, too
        (after(retried={"timeout": 1}), TIMEOUT, ANSWERED_BEFORE),
        (after(), replace(TIMEOUT, blameless=True), ANSWERED_BEFORE),  # its client is slow
        (after(), replace(TIMEOUT, final=True), ANSWERED_BEFORE),  # it would end as this one
        (after(retried={"server_error": 3}), FAILED, ANSWERED_BEFORE),
        (after(), TIMEOUT, ANSWERED_BEFORE.without(["fast"])),  # its budget is used up
        (after(*["timeout"] * 10), TIMEOUT, ANSWERED_BEFORE),
        (after(client_timeout=10.5), TIMEOUT, ANSWERED_BEFORE),
        (after(committed=Committed("text")), TIMEOUT, ANSWERED_BEFORE),
    ],
)
def test_but_no_other_is(whole: Exchange, verdict: UpstreamFailed, view: TierView) -> None:
    assert isinstance(step(whole, verdict, view=view), Fail)
