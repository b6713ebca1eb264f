"""Every rule about what follows an attempt, and the error that a client gets of it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, get_args

import pytest

from app.core.exchange import AttemptRecord, Committed, Controls, Exchange
from app.core.failures import error_of, reason_of
from app.core.ladder import TierView
from app.core.next_step import (
    Deliver,
    Fail,
    Move,
    PassOn,
    Retry,
    Step,
    after_waiting,
    next_step,
)
from app.core.tiers import Route
from app.core.verdicts import (
    CallFailure,
    Cut,
    EmptyResponse,
    InvalidToolCall,
    LoopDetected,
    OutputTruncated,
    Rejected,
    UpstreamFailed,
    Verdict,
)
from app.errors import ProxyError
from app.settings import EscalationReason
from app.settings_source import from_mapping
from tests.core.exchanges import exchange

LOOP = LoopDetected("repetition", 3, "the reply repeats itself")
INVALID = InvalidToolCall((CallFailure("get_weather", "schema", "`city` is missing"),))
TRUNCATED = OutputTruncated("tool_calls")
FAILED = UpstreamFailed("server_error", "status 500", status=500)
TIMEOUT = UpstreamFailed("timeout", "nothing came within 30 s")
REFUSED = UpstreamFailed("server_error", "the connection was refused", refused=True)
BUSY = UpstreamFailed("tier_busy", "tier fast: no free place within 60 s", retry_after=60)
SHED = UpstreamFailed("memory_pressure", "tier fast: memory is short", retry_after=60)
CLIENTS = UpstreamFailed(
    "server_error",
    "no",
    status=400,
    headers=((b"content-type", b"text/plain"),),
    body=b"no",
    client_fault=True,
)
INVALID_REASON = "tool_validation_failure"


def record(reason: str | None, tier: str = "fast") -> AttemptRecord:
    refused = reason == "refused"
    return AttemptRecord(tier, reason, None if refused else 200, 1.23456, refused)


def after(*reasons: str | None, **more: Any) -> Exchange:
    """An exchange on its last tier whose attempts ended like this."""
    given: dict[str, Any] = {"tiers": ("fast",), **more}
    return exchange(attempts=[record(reason) for reason in reasons], **given)


def step(
    whole: Exchange,
    verdict: Verdict | None,
    now: float = 1.0,
    view: TierView | None = None,
    **sections: Any,
) -> Step:
    settings = from_mapping({"reliability": sections})
    return next_step(whole, verdict, settings, view or TierView(), now)


def error_after(whole: Exchange, verdict: Verdict, **sections: Any) -> ProxyError:
    sections.setdefault("escalation", {"max_retries_before_escalate": 0})
    found = step(whole, verdict, **sections)
    assert isinstance(found, Fail)
    return found.error


@pytest.mark.parametrize("verdict", [None, Cut("max_output_tokens", "length")])
def test_what_is_well_or_cut_is_delivered(verdict: Verdict | None) -> None:
    assert step(after(None), verdict) == Deliver()


# Bad tool calls


@pytest.mark.parametrize(
    ("done", "most", "expected"),
    [
        (0, 3, Retry(INVALID_REASON, 1, correct=True)),
        (1, 3, Retry(INVALID_REASON, 2, correct=True)),
        (2, 3, Retry(INVALID_REASON, 3, correct=True, last=True)),
        (0, 1, Retry(INVALID_REASON, 1, correct=True, last=True)),
    ],
)
def test_a_bad_call_is_tried_again_with_a_correction(done: int, most: int, expected: Retry) -> None:
    whole = after(*[INVALID_REASON] * (done + 1), retried={INVALID_REASON: done})
    assert step(whole, INVALID, tool_validation={"max_retries": most}) == expected


def test_a_correction_can_be_turned_off() -> None:
    found = step(after(INVALID_REASON), INVALID, tool_validation={"retry_with_correction": False})
    assert found == Retry(INVALID_REASON, 1, correct=False)


@pytest.mark.parametrize("retried", [0, 3])
def test_an_end_of_retries(retried: int) -> None:
    whole = after(INVALID_REASON, retried={INVALID_REASON: retried}, last_response={"content": "x"})
    error = error_after(whole, INVALID, tool_validation={"max_retries": retried})
    assert (error.status, error.type) == (422, "tool_validation_failed")
    body = error.body()["error"]
    assert body["failures"] == [{"tool": "get_weather", "error": "`city` is missing"}]
    assert body["last_response"] == {"content": "x"}
    assert "`city` is missing" in body["message"]
    assert len(body["attempts"]) == 1
    rules = {"max_retries": retried, "on_exhausted": "return_last"}
    assert step(whole, INVALID, tool_validation=rules) == Deliver()


@pytest.mark.parametrize(
    ("now", "calls", "goes_on"), [(539.9, 1, True), (540.0, 1, False), (1.0, 10, False)]
)
@pytest.mark.parametrize("verdict", [INVALID, TRUNCATED])
def test_the_bounds_of_an_exchange(now: float, calls: int, goes_on: bool, verdict: Verdict) -> None:
    whole = after(*["server_error"] * calls)
    found = step(whole, verdict, now)
    assert isinstance(found, Retry) is goes_on


def test_after_text_that_went_out_one_retry_is_all() -> None:
    whole = after(INVALID_REASON, committed=Committed("Let me look."))
    assert isinstance(step(whole, INVALID), Retry)
    whole.text_retried = True
    assert isinstance(step(whole, INVALID), Fail)


def test_reasoning_that_went_out_limits_nothing() -> None:
    whole = after(INVALID_REASON, committed=Committed(""), text_retried=True)
    assert isinstance(step(whole, INVALID), Retry)


# A second opinion

DOUBT = replace(LOOP, doubt=True, repeats=2)


def test_a_doubted_reply_goes_out_unless_a_next_local_tier_can_be_asked() -> None:
    assert step(climbing("loop_detected"), DOUBT) == Move("standard", "loop_detected")
    text = Committed("Let me look.")
    for whole in (
        after("loop_detected"),  # there is no other tier
        climbing("loop_detected", committed=text),
        climbing("loop_detected", model_failure=DOUBT, doubted=True),  # another one has been asked
        climbing("loop_detected", controls=Controls(escalation=False)),
        climbing("loop_detected", tiers=("standard", "premium")),
    ):
        assert step(whole, DOUBT) == Deliver()


def test_a_doubt_is_not_what_a_client_is_told_of_a_tier_that_failed_after_it() -> None:
    whole = after("loop_detected", "server_error", model_failure=DOUBT)
    assert error_after(whole, FAILED).type == "all_tiers_failed"


# Cut by a limit that was not the client's


def test_a_cut_reply_is_tried_once_more_then_delivered_as_it_is() -> None:
    assert step(after("output_truncated"), TRUNCATED) == Retry("output_truncated", 1, last=True)
    again = after("output_truncated", retried={"output_truncated": 1})
    assert step(again, TRUNCATED) == Deliver()
    flowed = after("output_truncated", committed=Committed("Here is"))
    assert step(flowed, TRUNCATED) == Deliver()


def test_a_cut_reply_with_nothing_in_it_goes_to_the_next_tier_at_once() -> None:
    unseen = OutputTruncated("unseen")
    assert step(climbing("output_truncated"), unseen) == Move("standard", "output_truncated")
    assert step(after("output_truncated"), unseen) == Deliver()


# Upstream failed


def test_the_clients_own_fault_goes_back_as_it_came() -> None:
    assert step(after("server_error"), CLIENTS) == PassOn(400, CLIENTS.headers, b"no")


def test_but_not_into_a_stream_that_has_begun() -> None:
    found = step(after("server_error", headers_sent=True), CLIENTS)
    assert isinstance(found, Fail)


@pytest.mark.parametrize(
    ("reasons", "verdict", "status", "kind", "retry_after"),
    [
        (["server_error"], FAILED, 502, "all_tiers_failed", None),
        (["timeout"], TIMEOUT, 504, "all_tiers_failed", None),
        (["timeout", "timeout"], TIMEOUT, 504, "all_tiers_failed", None),
        (["server_error", "timeout"], TIMEOUT, 502, "all_tiers_failed", None),
        (["refused"], REFUSED, 503, "upstream_unavailable", 5),
        (["server_error", "refused"], REFUSED, 502, "all_tiers_failed", None),
        (["timeout", "refused"], REFUSED, 502, "all_tiers_failed", None),
        (["server_error"], BUSY, 503, "tier_busy", 60),
        ([], BUSY, 503, "tier_busy", 60),
        ([], SHED, 503, "memory_pressure", 60),
        (["server_error"], SHED, 503, "memory_pressure", 60),
    ],
)
def test_the_error_of_a_failure(
    reasons: list[str], verdict: UpstreamFailed, status: int, kind: str, retry_after: float | None
) -> None:
    error = error_after(after(*reasons), verdict)
    assert (error.status, error.type, error.retry_after) == (status, kind, retry_after)
    assert verdict.message in error.message
    headers = dict(error.headers())
    assert headers[b"x-should-retry"] == (b"true" if status == 503 else b"false")
    assert (b"retry-after" in headers) is (retry_after is not None)


def test_upstreams_own_retry_after_is_passed_on() -> None:
    verdict = UpstreamFailed("server_error", "status 429", status=429, retry_after=3)
    assert error_after(after("server_error"), verdict).retry_after == 3


def test_every_attempt_is_listed() -> None:
    error = error_after(after("timeout", "server_error"), FAILED)
    assert error.body()["error"]["attempts"] == [
        {"tier": "fast", "reason": "timeout", "status": 200, "seconds": 1.235},
        {"tier": "fast", "reason": "server_error", "status": 200, "seconds": 1.235},
    ]


# What stages refuse


def test_a_loop() -> None:
    error = error_after(after("loop_detected", retried={"loop_detected": 1}), LOOP)
    assert (error.status, error.type, error.message) == (422, "loop_detected", LOOP.message)
    body = error.body()["error"]
    assert (body["retry_after"], body["detector"], body["repeats"]) == (5, "repetition", 3)


def test_a_refusal_before_the_call() -> None:
    extra = {"scope": "session", "used": 5, "limit": 4}
    rejected = Rejected(429, "budget_exceeded", "no more", extra, retry_after=60)
    error = error_after(after(), rejected)
    assert (error.status, error.type, error.retry_after) == (429, "budget_exceeded", 60)
    assert error.body()["error"] | extra == error.body()["error"]


def test_an_empty_reply() -> None:
    error = error_after(after("empty_response"), EmptyResponse())
    assert (error.status, error.type) == (502, "all_tiers_failed")


@pytest.mark.parametrize(
    ("verdict", "reason"),
    [
        (None, None),
        (Cut("repeated_tool_calls", "tool_calls"), None),
        (TIMEOUT, "timeout"),
        (FAILED, "server_error"),
        (LOOP, "loop_detected"),
        (INVALID, INVALID_REASON),
        (TRUNCATED, "output_truncated"),
        (EmptyResponse(), "empty_response"),
        (Rejected(429, "budget_exceeded", ""), "budget_exceeded"),
    ],
)
def test_reasons(verdict: Verdict | None, reason: str | None) -> None:
    assert reason_of(verdict) == reason


@pytest.mark.parametrize("verdict", [LOOP, INVALID, TRUNCATED, EmptyResponse(), FAILED, BUSY])
def test_every_error_has_openais_shape(verdict: Verdict) -> None:
    error = error_of(after("server_error"), verdict).body()["error"]
    assert list(error)[:4] == ["message", "type", "param", "code"]
    assert error["message"]


# Up the tiers


CHAIN = ("fast", "standard", "longctx")
EMPTY = EmptyResponse()
HINTED = replace(LOOP, hint="Do not call it again.", calls=(("wait", "{}"),), believable=True)
OVERFLOW = UpstreamFailed("context_overflow", "too long", status=400, body=b"too long")
NO_TOOLS = UpstreamFailed("server_error", "no tools", status=400, final=True, lacks="tools")
RATE_LIMITED = UpstreamFailed("server_error", "slow down", status=429, retry_after=30)
SPENT = {
    "tool_validation_failure": 3,
    "server_error": 3,
    "empty_response": 1,
    "output_truncated": 1,
    "loop_detected": 1,
}


def climbing(*reasons: str | None, **more: Any) -> Exchange:
    """An exchange on the first of three tiers."""
    return after(*reasons, **{"tiers": CHAIN, **more})


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
    text = Committed("Text.")
    assert step(whole, verdict) == Move("standard", reason)
    # Each thing that forbids it:
    others = [r for r in get_args(EscalationReason) if r != reason]
    for forbidden in (
        step(climbing(reason, retried=SPENT, controls=Controls(escalation=False)), verdict),
        step(whole, verdict, escalation={"enabled": False}),
        step(whole, verdict, escalation={"escalate_on": others}),
        step(whole, verdict, escalation={"max_attempts": 1}),
        step(whole, verdict, now=540.0),
        step(replace(whole, committed=text, text_retried=True), verdict),
        step(replace(whole, tier="longctx"), verdict),
    ):
        assert isinstance(forbidden, (Fail, Deliver))


@pytest.mark.parametrize(
    ("verdict", "expected"),
    [
        (FAILED, Retry("server_error", 1, after=0.25)),
        (TIMEOUT, Move("standard", "timeout")),
        (BUSY, Move("standard", "tier_busy")),
        (LOOP, Move("standard", "loop_detected")),
        (EMPTY, Retry("empty_response", 1, last=True)),
        (TRUNCATED, Retry("output_truncated", 1, last=True)),
        (NO_TOOLS, Move("standard", "server_error")),
        (RATE_LIMITED, Move("standard", "server_error")),
        (INVALID, Retry("tool_validation_failure", 1, correct=True)),
    ],
)
def test_the_first_failure_on_a_tier(verdict: Verdict, expected: Step) -> None:
    assert step(climbing(reason_of(verdict)), verdict) == expected


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


def test_a_tier_that_is_degraded_by_now_is_not_tried_again() -> None:
    view = TierView(passed_over={"fast": 9.0})
    assert step(climbing("server_error"), FAILED, view=view) == Move("standard", "server_error")
    # Unless there is no other.
    alone = step(after("server_error"), FAILED, view=view)
    assert alone == Retry("server_error", 1, after=0.25)


def test_a_degraded_tier_is_gone_past() -> None:
    found = step(climbing("timeout"), TIMEOUT, view=TierView(passed_over={"standard": 9.0}))
    assert found == Move("longctx", "timeout")


def test_but_not_all_of_them() -> None:
    view = TierView(passed_over={"standard": 9.0, "longctx": 9.0})
    assert step(climbing("timeout"), TIMEOUT, view=view) == Move("standard", "timeout")


def test_a_full_queue_never_leads_to_the_cloud() -> None:
    whole = climbing("tier_busy", tiers=("fast", "premium"))
    assert isinstance(step(whole, BUSY), Fail)
    assert step(replace(whole, retried={}), TIMEOUT) == Move("premium", "timeout")


def test_shedding_never_leads_to_another_tier() -> None:
    whole = climbing("server_error")
    failed = step(whole, SHED)
    assert isinstance(failed, Fail)
    assert failed.error.type == "memory_pressure"
    assert step(whole, BUSY) == Move("standard", "tier_busy")


NO_TOKENS = Rejected(
    429, "budget_exceeded", "the tier's tokens are used up", {}, 60.0, tier_only=True
)


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


def test_a_budget_that_ends_between_attempts_lists_them() -> None:
    error = error_after(after("empty_response"), replace(NO_TOKENS, tier_only=False))
    assert [attempt["reason"] for attempt in error.body()["error"]["attempts"]] == [
        "empty_response"
    ]


def test_an_overflow_goes_to_a_larger_window_past_others() -> None:
    assert step(climbing("context_overflow"), OVERFLOW) == Move("longctx", "context_overflow")
    last = replace(climbing("context_overflow"), tier="longctx")
    assert step(last, OVERFLOW) == PassOn(400, (), b"too long")


def test_the_window_that_the_error_names_counts() -> None:
    told = replace(OVERFLOW, window=4096)
    view = TierView(windows={"fast": 4096})
    found = step(climbing("context_overflow"), told, view=view)
    assert found == Move("standard", "context_overflow")


def test_where_it_names_none_that_of_the_settings_does() -> None:
    """That the prompt is too long for `fast` makes `standard` no larger."""
    view = TierView(windows={"fast": 1})
    found = step(climbing("context_overflow"), OVERFLOW, view=view)
    assert found == Move("longctx", "context_overflow")


def test_the_clients_own_timeout_counts_where_it_is_shorter() -> None:
    whole = climbing("timeout", client_timeout=60.0)
    assert isinstance(step(whole, TIMEOUT, now=59.0), Move)
    assert isinstance(step(whole, TIMEOUT, now=60.0), Fail)


def test_all_connections_refused_is_one_failure() -> None:
    """All tiers are behind the same LiteLLM."""
    found = step(climbing("refused"), REFUSED)
    assert isinstance(found, Fail) and found.error.type == "upstream_unavailable"


def test_only_litellm_that_is_gone_is_upstream_unavailable() -> None:
    """Not a cloud that is called directly."""
    route = Route(("fast", "premium"), direct=frozenset({"premium"}))

    def on_premium(*attempts: AttemptRecord) -> ProxyError:
        whole = replace(climbing(), route=route, tier="premium", attempts=list(attempts))
        return error_after(whole, REFUSED)

    alone = on_premium(record("refused", "premium"))
    assert (alone.status, alone.type) == (502, "all_tiers_failed")
    silent = AttemptRecord("fast", "timeout", None, 30.0)
    assert on_premium(silent, record("refused", "premium")).status == 502
    both = on_premium(record("refused", "fast"), record("refused", "premium"))
    assert (both.status, both.type) == (503, "upstream_unavailable")


def test_litellm_that_is_gone_leads_to_the_direct_cloud_alone() -> None:
    direct = Route((*CHAIN, "premium"), direct=frozenset({"premium"}))
    whole = replace(climbing("refused"), route=direct)
    assert step(whole, REFUSED) == Move("premium", "server_error")
    # Also where that is all that is left, and degraded.
    view = TierView(passed_over={"premium": 9.0})
    assert step(whole, REFUSED, view=view) == Move("premium", "server_error")


def test_a_direct_cloud_that_is_gone_leads_on() -> None:
    """LiteLLM is none the worse for it; and nobody waits for a second refusal."""
    route = Route(("premium", "longctx"), direct=frozenset({"premium"}))
    whole = replace(climbing("refused"), route=route, tier="premium")
    assert step(whole, REFUSED) == Move("longctx", "server_error")


# After waiting for its turn


def waited(whole: Exchange, now: float = 1.0, view: TierView | None = None, **rules: Any) -> Any:
    settings = from_mapping({"reliability": rules})
    return after_waiting(whole, settings, view or TierView(), now)


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
    "whole",
    [
        after(),
        climbing(controls=Controls(escalation=False)),
        climbing(committed=Committed("Let me look.")),
        replace(climbing(), tier="longctx"),
    ],
    ids=["one tier", "escalation off", "text is out", "the last"],
)
def test_unless_it_is_the_last_one_standing(whole: Exchange) -> None:
    assert waited(whole, view=TierView(passed_over={whole.tier: 9.0})) is None


def test_or_all_others_failed_as_well() -> None:
    view = TierView(passed_over=dict.fromkeys(CHAIN, 9.0))
    assert waited(climbing(), view=view) is None


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


# What a server's failure in between leaves as it was


@pytest.mark.parametrize("verdict", [FAILED, TIMEOUT, BUSY, replace(OVERFLOW, window=100)])
def test_a_loops_hint_goes_on_with_the_request(verdict: UpstreamFailed) -> None:
    whole = climbing("loop_detected", "server_error", model_failure=HINTED, failed_on="fast")
    whole.tier = "standard"
    whole.retried = SPENT
    found = step(whole, verdict)
    assert isinstance(found, Move)
    assert (found.tier, found.hint) == ("longctx", HINTED.hint)
    whole.model_failure = None
    found = step(whole, verdict)
    assert isinstance(found, Move) and found.hint == ""


# Loops


def test_a_loop_that_two_tiers_agreed_on_is_delivered() -> None:
    believed = replace(HINTED, believable=True, believed=True)
    assert step(after("loop_detected"), believed) == Deliver()
    assert step(climbing("loop_detected"), believed) == Deliver()
    exhausted = replace(believed, believable=False)
    assert isinstance(step(after("loop_detected"), exhausted), Retry)
    assert isinstance(
        step(after("loop_detected"), believed, loop_detection={"on_break": "error"}), Fail
    )


def test_a_broken_loop_goes_up_with_the_hint() -> None:
    found = step(climbing("loop_detected"), HINTED)
    assert found == Move("standard", "loop_detected", hint="Do not call it again.")


def test_two_tiers_that_want_the_same_call_are_believed() -> None:
    whole = climbing("loop_detected", model_failure=HINTED, failed_on="fast")
    whole.tier = "standard"
    assert step(whole, HINTED) == Deliver()
    assert step(whole, replace(HINTED, believable=False)) == Move(
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


def test_thinking_without_end_is_asked_for_an_answer_then_goes_up() -> None:
    thinking = OutputTruncated("reasoning")
    first = step(climbing("output_truncated"), thinking)
    assert isinstance(first, Retry) and "Answer directly" in first.hint
    spent = climbing("output_truncated", retried={"output_truncated": 1})
    assert step(spent, thinking) == Move("standard", "output_truncated")
    assert isinstance(step(replace(spent, tier="longctx"), thinking), Fail)


@pytest.mark.parametrize(
    ("own", "kind"), [(LOOP, "loop_detected"), (INVALID, "tool_validation_failed")]
)
def test_what_the_model_did_last_names_the_error(own: Verdict, kind: str) -> None:
    whole = after("loop_detected", "timeout", model_failure=own, last_response={})
    error = error_after(whole, TIMEOUT)
    assert (error.status, error.type) == (422, kind)
    assert len(error.body()["error"]["attempts"]) == 2


def test_after_text_that_went_out_a_bad_call_may_still_go_up_once() -> None:
    whole = climbing(INVALID_REASON, committed=Committed("Let me look."))
    found = step(whole, INVALID, tool_validation={"max_retries": 0})
    assert found == Move("standard", INVALID_REASON, correct=True)
