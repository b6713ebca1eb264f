"""The rules for what follows an attempt, by kind of verdict, and the error that the client gets."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest

from mlx_stack_proxy.engine.deadlines import OPINION_SECONDS, opinion_until
from mlx_stack_proxy.engine.exchange import Exchange
from mlx_stack_proxy.engine.failures import error_of
from mlx_stack_proxy.engine.outcome import Committed
from mlx_stack_proxy.engine.request import Controls
from mlx_stack_proxy.engine.steps import Deliver, DeliverEarlier, Fail, Move, PassOn, Retry, Step
from mlx_stack_proxy.engine.verdicts import (
    EmptyResponse,
    Rejected,
    Verdict,
)
from mlx_stack_proxy.errors import ProxyError
from mlx_stack_proxy.escalation.ladder import TierView
from mlx_stack_proxy.settings_source import from_mapping
from tests.engine.stepping import (
    BUSY,
    CLIENTS,
    FAILED,
    INVALID,
    INVALID_REASON,
    LOOP,
    REFUSED,
    SHED,
    TIMEOUT,
    TRUNCATED,
    after,
    climbing,
    error_after,
    running,
    step,
)

# Bad tool calls


def test_a_correction_can_be_turned_off() -> None:
    found = step(after(INVALID_REASON), INVALID, tool_validation={"retry_with_correction": False})
    assert found == Retry(INVALID_REASON, 1, correct=False)
    assert step(after(INVALID_REASON), MISSED, tool_validation={"max_retries": 0}) == Deliver()


@pytest.mark.parametrize("retried", [0, 3])
def test_an_end_of_retries(retried: int) -> None:
    whole = after(INVALID_REASON, retried={INVALID_REASON: retried})
    invalid = replace(INVALID, response={"content": "x"})
    error = error_after(whole, invalid, tool_validation={"max_retries": retried})
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


# A second opinion

DOUBT = replace(LOOP, doubt=True, repeats=2)
MISSED = replace(INVALID, doubt=True)
SLIP = replace(INVALID, doubt=True, ask_next=True)


@pytest.mark.parametrize(
    ("doubt", "reason", "otherwise"),
    [
        (DOUBT, "loop_detected", Deliver()),
        (SLIP, INVALID_REASON, Retry(INVALID_REASON, 1, correct=True)),
    ],
)
def test_a_doubt_asks_the_next_local_tier_where_there_is_one(
    doubt: Verdict, reason: str, otherwise: Step
) -> None:
    assert step(climbing(reason), doubt) == Move("standard", reason)
    for whole in (
        after(reason),  # there is no other tier
        climbing(reason, committed=Committed("Let me look.")),
        climbing(reason, controls=Controls(escalation=False)),
        climbing(reason, tiers=("standard", "premium")),
    ):
        assert step(whole, doubt) == otherwise
    assert step(climbing(reason), doubt, escalation={"escalate_on": ["timeout"]}) == otherwise
    view = TierView(passed_over=frozenset({"standard"}))
    assert step(climbing(reason), doubt, view=view) == Move("longctx", reason)
    view = TierView(passed_over=frozenset({"standard", "longctx"}))
    assert step(climbing(reason), doubt, view=view) == otherwise


@pytest.mark.parametrize("doubt", [DOUBT, SLIP], ids=["loop", "slip"])
@pytest.mark.parametrize(
    "verdict",
    [DOUBT, SLIP, MISSED, LOOP, INVALID, EmptyResponse(), TRUNCATED, FAILED, BUSY, CLIENTS],
)
def test_whatever_is_no_reply_is_no_opinion(verdict: Verdict, doubt: Verdict) -> None:
    """A tier is asked once, and no other after it."""
    asked = climbing("loop_detected", model_failure=doubt)
    assert step(asked, verdict) == DeliverEarlier(0)
    assert step(asked, None) == Deliver()


@pytest.mark.parametrize(
    ("timeout", "now", "until"),
    [(None, 1.0, 1.0 + OPINION_SECONDS), (11.0, 1.0, 10.0), (5.0, 6.0, 6.0)],
)
def test_a_second_opinion_is_waited_for_within_the_clients_patience(
    timeout: float | None, now: float, until: float
) -> None:
    asked = climbing("loop_detected", model_failure=DOUBT, client_timeout=timeout)
    assert opinion_until(running(asked), from_mapping({}), now) == pytest.approx(until)
    assert opinion_until(running(climbing("loop_detected")), from_mapping({}), now) == math.inf


# Upstream failed


OVERFLOW = replace(CLIENTS, reason="context_overflow", window=2000)


def test_a_retry_that_the_tier_refuses_is_not_the_clients_fault() -> None:
    """It took the client's own request before; what was added to it, or changed, is ours."""
    known: dict[str, Any] = {"model_failure": INVALID, "retried": {INVALID_REASON: 1}}
    refused = (INVALID_REASON, "client_error")
    assert step(climbing(*refused, **known), CLIENTS) == Move("standard", INVALID_REASON)
    assert step(climbing(*refused, **known), OVERFLOW) == Move("standard", "context_overflow")
    for ended in (
        step(after(*refused, **known), CLIENTS),
        step(after(*refused, **known), OVERFLOW),
        step(climbing(*refused, **known, committed=Committed("So: ")), CLIENTS),
    ):
        assert isinstance(ended, Fail)
        assert (ended.error.status, ended.error.type) == (422, "tool_validation_failed")
    longer = climbing("output_truncated", "client_error", retried={"output_truncated": 1})
    assert step(longer, CLIENTS) == Move("standard", "output_truncated")


@pytest.mark.parametrize("client_fault", [True, False])
def test_words_that_a_tier_refuses_go_into_the_last_result(client_fault: bool) -> None:
    refused = replace(CLIENTS, about_ours=True, client_fault=client_fault, final=True)
    elsewhere = Retry("client_error", 1, last=True, hint_in_tool_result=True)
    corrected: dict[str, Any] = {"model_failure": INVALID, "retried": {INVALID_REASON: 1}}
    for whole in (
        climbing("client_error"),
        after("client_error"),
        after(INVALID_REASON, "client_error", **corrected),
        climbing(INVALID_REASON, "client_error", **corrected, committed=Committed("So: ")),
    ):
        assert step(whole, refused) == elsewhere
        assert isinstance(step(whole, replace(refused, about_ours=False)), (PassOn, Fail, Move))
    found = step(climbing("client_error", in_tool_result=True), refused)
    assert isinstance(found, PassOn if client_fault else Move), "it was not where they stood"
    bound = {"max_attempts": 1}
    found = step(after("client_error"), refused, escalation=bound)
    assert isinstance(found, PassOn if client_fault else Fail)
    nowhere = climbing(INVALID_REASON, "client_error", **corrected, in_tool_result=True)
    assert step(nowhere, refused) == Move("standard", INVALID_REASON), "the tier takes them nowhere"


@pytest.mark.parametrize(
    ("reasons", "verdict", "status", "kind", "retry_after"),
    [
        (["server_error"], FAILED, 502, "all_tiers_failed", None),
        (["server_error"], replace(FAILED, retry_after=3), 502, "all_tiers_failed", 3),
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
        (["empty_response"], EmptyResponse(), 502, "all_tiers_failed", None),
    ],
)
def test_the_error_of_a_failure(
    reasons: list[str], verdict: Verdict, status: int, kind: str, retry_after: float | None
) -> None:
    error = error_after(after(*reasons), verdict)
    assert (error.status, error.type, error.retry_after) == (status, kind, retry_after)
    assert getattr(verdict, "message", "") in error.message
    body = error.body()["error"]
    assert list(body)[:4] == ["message", "type", "param", "code"]
    headers = dict(error.headers())
    assert headers[b"x-should-retry"] == (b"true" if status == 503 else b"false")
    assert (b"retry-after" in headers) is (retry_after is not None)


# What stages refuse


def test_a_loop_and_a_refusal_before_the_call() -> None:
    looped = after("timeout", "loop_detected", retried={"loop_detected": 1})
    error = error_after(looped, LOOP)
    assert (error.status, error.type, error.message) == (422, "loop_detected", LOOP.message)
    body = error.body()["error"]
    assert (body["retry_after"], body["detector"], body["repeats"]) == (5, "repetition", 3)
    assert body["attempts"] == [
        {"tier": "fast", "reason": "timeout", "status": 200, "seconds": 1.235},
        {"tier": "fast", "reason": "loop_detected", "status": 200, "seconds": 1.235},
    ]
    extra = {"scope": "session", "used": 5, "limit": 4}
    refusal = ProxyError(429, "budget_exceeded", "no more", extra=extra, retry_after=60)
    error = error_after(after(), Rejected(refusal))
    assert (error.status, error.type, error.retry_after) == (429, "budget_exceeded", 60)
    assert error.body()["error"] | extra == error.body()["error"]


def test_a_refusal_is_left_as_it_is_by_an_error_that_lists_the_attempts() -> None:
    refusal = ProxyError(
        429, "budget_exceeded", "no", param="model", code="x", retry_after=9, allow="GET"
    )
    whole = after("server_error")
    error = error_of(whole, Rejected(refusal))
    attempts = [attempt.as_dict() for attempt in whole.attempts]
    assert error.extra == {"attempts": attempts} and refusal.extra == {}
    assert vars(error) == vars(refusal) | {"extra": error.extra}


@pytest.mark.parametrize(
    "whole",
    [
        after(None),
        climbing(*[None] * 50),
        climbing(None, model_failure=DOUBT, committed=Committed("So: "), text_retried=True),
        climbing(None, model_failure=DOUBT),
        climbing(None, model_failure=INVALID, retried={INVALID_REASON: 3}),
        climbing(None, in_tool_result=True, hint="Do not."),
    ],
    ids=["first", "many", "doubt is out", "asked", "corrected", "hinted"],
)
@pytest.mark.parametrize("now", [1.0, 10_000.0])
def test_a_reply_that_nothing_is_wrong_with_goes_out(whole: Exchange, now: float) -> None:
    """Whatever came before it, and however late it is: it, and no other that is kept."""
    closed = TierView(passed_over={"fast": 1.0}, closed=frozenset({"fast"}))
    assert step(whole, None, now, closed) == Deliver()
