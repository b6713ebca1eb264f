"""The rules for what follows an attempt, by kind of verdict, and the error that the client gets."""

from __future__ import annotations

import math

import pytest
from msgspec.structs import replace

from mlx_stack_proxy.engine.client_errors import error_of
from mlx_stack_proxy.engine.deadlines import OPINION_SECONDS, opinion_until
from mlx_stack_proxy.engine.request import Controls
from mlx_stack_proxy.engine.steps import Deliver, DeliverEarlier, Fail, Move, PassOn, Retry, Step
from mlx_stack_proxy.engine.tier_view import TierView
from mlx_stack_proxy.engine.verdicts import Failure, Verdict, rejected
from mlx_stack_proxy.errors import ProxyError
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
    OURS,
    OVERFLOW,
    REFUSED,
    SECOND,
    SHED,
    SLIP,
    TEXT,
    TIMEOUT,
    TRUNCATED,
    Story,
    error_after,
    follows,
    told,
)

ALONE = ("fast",)

# Bad tool calls


def test_a_correction_can_be_turned_off() -> None:
    rules = {"tool_validation": {"retry_with_correction": False}}
    assert follows(INVALID, rules=rules) == Retry(INVALID_REASON, 1, correct=False)
    assert follows(DOUBT, rules={"tool_validation": {"max_retries": 0}}) == Deliver()


def test_an_end_of_retries() -> None:
    rules = {"tool_validation": {"max_retries": 1}}
    story = (INVALID, CORRECTED, replace(INVALID, response={"content": "x"}))
    error = error_after(*story, tiers=ALONE, rules=rules)
    assert (error.status, error.type) == (422, "tool_validation_failed")
    body = error.body()["error"]
    assert body["failures"] == [{"tool": "get_weather", "error": "`city` is missing"}]
    assert body["last_response"] == {"content": "x"}
    assert "`city` is missing" in body["message"]
    assert len(body["attempts"]) == 2
    rules = {"tool_validation": {"max_retries": 1, "on_exhausted": "return_last"}}
    assert follows(*story, tiers=ALONE, rules=rules) == Deliver()


@pytest.mark.parametrize(
    ("now", "calls", "goes_on"), [(539.9, 1, True), (540.0, 1, False), (1.0, 10, False)]
)
@pytest.mark.parametrize("verdict", [INVALID, TRUNCATED])
def test_the_bounds_of_an_exchange(now: float, calls: int, goes_on: bool, verdict: Verdict) -> None:
    found = follows(*(FAILED, BACK_OFF) * (calls - 1), verdict, now=now, tiers=ALONE)
    assert isinstance(found, Retry) is goes_on


# A second opinion


@pytest.mark.parametrize(
    ("doubt", "reason", "otherwise"),
    [(DOUBTED_LOOP, "loop_detected", Deliver()), (SLIP, INVALID_REASON, CORRECTED)],
)
def test_a_doubt_asks_the_next_local_tier_where_there_is_one(
    doubt: Verdict, reason: str, otherwise: Step
) -> None:
    view = TierView(passed_over=frozenset({"standard"}))
    assert follows(doubt, view=view) == Move("longctx", reason)
    view = TierView(passed_over=frozenset({"standard", "longctx"}))
    for found in (
        follows(doubt, view=view),
        follows(doubt, tiers=ALONE),
        follows(doubt, controls=Controls(escalation=False)),
        follows(doubt, tiers=("standard", "premium")),
        follows(doubt, rules={"escalation": {"escalate_on": ["timeout"]}}),
    ):
        assert found == otherwise


@pytest.mark.parametrize("doubt", [DOUBTED_LOOP, SLIP], ids=["loop", "slip"])
@pytest.mark.parametrize(
    "verdict",
    [DOUBTED_LOOP, SLIP, DOUBT, LOOP, INVALID, EMPTY, TRUNCATED, FAILED, BUSY, CLIENTS],
)
def test_whatever_is_no_reply_is_no_opinion(verdict: Verdict, doubt: Verdict) -> None:
    """A tier is asked once, and no other after it."""
    assert follows(doubt, SECOND, verdict) == DeliverEarlier(0)


@pytest.mark.parametrize(
    ("timeout", "now", "until"),
    [(None, 1.0, 1.0 + OPINION_SECONDS), (11.0, 1.0, 10.0), (5.0, 6.0, 6.0)],
)
def test_a_second_opinion_is_waited_for_within_the_clients_patience(
    timeout: float | None, now: float, until: float
) -> None:
    asked = told(DOUBTED_LOOP, SECOND, client_timeout=timeout)
    assert opinion_until(asked, from_mapping({}), now) == pytest.approx(until)
    assert opinion_until(told(LOOP, SECOND), from_mapping({}), now) == math.inf


# Upstream failed


def test_a_retry_that_the_tier_refuses_is_not_the_clients_fault() -> None:
    """It took the client's own request before; what was added to it, or changed, is ours."""
    too_long = replace(OVERFLOW, window=2000)
    assert follows(INVALID, CORRECTED, too_long) == Move("standard", "context_overflow")
    assert follows(TRUNCATED, AGAIN, CLIENTS) == Move("standard", "output_truncated")
    for ended in (
        error_after(INVALID, CORRECTED, CLIENTS, tiers=ALONE),
        error_after(INVALID, CORRECTED, too_long, tiers=ALONE),
        error_after(INVALID, CORRECTED, TEXT, CLIENTS),
    ):
        assert (ended.status, ended.type) == (422, "tool_validation_failed")


@pytest.mark.parametrize("client_fault", [True, False])
def test_words_that_a_tier_refuses_go_into_the_last_result(client_fault: bool) -> None:
    refused = replace(OURS, fault="client_or_ours" if client_fault else "ours", final=True)
    client = Failure("refused", "no", status=400, fault="client", final=True)
    elsewhere = client if client_fault else replace(FAILED, final=True)
    for story, tiers in (
        ((), ALONE),
        ((INVALID, CORRECTED), ALONE),
        ((INVALID, CORRECTED, TEXT), ("fast", "standard")),
    ):
        assert follows(*story, refused, tiers=tiers) == IN_RESULT
        other = follows(*story, elsewhere, tiers=tiers)
        assert isinstance(other, (PassOn, Fail, Move))
    found = follows(refused, IN_RESULT, refused)
    assert isinstance(found, PassOn if client_fault else Move), "it was not where they stood"
    found = follows(refused, tiers=ALONE, rules={"escalation": {"max_attempts": 1}})
    assert isinstance(found, PassOn if client_fault else Fail)
    nowhere = follows(INVALID, CORRECTED, refused, IN_RESULT, refused)
    assert nowhere == Move("standard", INVALID_REASON), "the tier takes them nowhere"


@pytest.mark.parametrize(
    ("story", "status", "kind", "retry_after"),
    [
        ((FAILED,), 502, "all_tiers_failed", None),
        ((replace(FAILED, retry_after=3),), 502, "all_tiers_failed", 3),
        ((TIMEOUT,), 504, "all_tiers_failed", None),
        ((TIMEOUT, BACK_OFF, TIMEOUT), 504, "all_tiers_failed", None),
        ((FAILED, BACK_OFF, TIMEOUT), 502, "all_tiers_failed", None),
        ((REFUSED,), 503, "upstream_unavailable", 5),
        ((FAILED, BACK_OFF, REFUSED), 502, "all_tiers_failed", None),
        ((TIMEOUT, BACK_OFF, REFUSED), 502, "all_tiers_failed", None),
        ((BUSY,), 503, "tier_busy", 60),
        ((FAILED, BACK_OFF, SHED), 503, "memory_pressure", 60),
        ((EMPTY,), 502, "all_tiers_failed", None),
    ],
)
def test_the_error_of_a_failure(
    story: Story, status: int, kind: str, retry_after: float | None
) -> None:
    error = error_after(*story, tiers=ALONE)
    assert (error.status, error.type, error.retry_after) == (status, kind, retry_after)
    assert getattr(story[-1], "message", "") in error.message
    body = error.body()["error"]
    assert list(body)[:4] == ["message", "type", "param", "code"]
    headers = dict(error.headers())
    assert headers[b"x-should-retry"] == (b"true" if status == 503 else b"false")
    assert (b"retry-after" in headers) is (retry_after is not None)


# What stages refuse


def test_a_loop_and_a_refusal_before_the_call() -> None:
    error = error_after(TIMEOUT, Retry("loop_detected", 1), LOOP, tiers=ALONE)
    assert (error.status, error.type, error.message) == (422, "loop_detected", LOOP.message)
    body = error.body()["error"]
    assert (body["retry_after"], body["detector"], body["repeats"]) == (5, "repetition", 3)
    assert body["attempts"] == [
        {"tier": "fast", "reason": "timeout", "status": 200, "seconds": 1.235},
        {"tier": "fast", "reason": "loop_detected", "status": 200, "seconds": 1.235},
    ]
    extra = {"scope": "session", "used": 5, "limit": 4}
    refusal = ProxyError(429, "budget_exceeded", "no more", extra=extra, retry_after=60)
    error = error_after(rejected(refusal), tiers=ALONE)
    assert (error.status, error.type, error.retry_after) == (429, "budget_exceeded", 60)
    assert error.body()["error"] | extra == error.body()["error"]


def test_a_refusal_is_left_as_it_is_by_an_error_that_lists_the_attempts() -> None:
    refusal = ProxyError(
        429, "budget_exceeded", "no", param="model", code="x", retry_after=9, allow="GET"
    )
    whole = told(FAILED)
    error = error_of(whole, rejected(refusal))
    attempts = [attempt.as_dict() for attempt in whole.attempts]
    assert error.extra == {"attempts": attempts} and refusal.extra == {}
    assert vars(error) == vars(refusal) | {"extra": error.extra}


@pytest.mark.parametrize(
    "story",
    [
        (),
        (FAILED, BACK_OFF) * 49,
        (TEXT, DOUBTED_LOOP, SECOND),
        (DOUBTED_LOOP, SECOND),
        (INVALID, CORRECTED),
        (OURS, IN_RESULT),
    ],
    ids=["first", "many", "doubt is out", "asked", "corrected", "hinted"],
)
@pytest.mark.parametrize("now", [1.0, 10_000.0])
def test_a_reply_that_nothing_is_wrong_with_goes_out(story: Story, now: float) -> None:
    """Whatever came before it, and however late it is: it, and no other that is kept."""
    closed = TierView(passed_over={"fast": 1.0}, closed=frozenset({"fast"}))
    assert follows(*story, None, now=now, view=closed) == Deliver()
