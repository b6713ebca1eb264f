"""The rules for what follows an attempt if there is another tier to move to."""

from __future__ import annotations

from typing import Any, get_args

import pytest
from msgspec.structs import replace

from mlx_stack_proxy.driver.live_rules import after_waiting
from mlx_stack_proxy.engine.deadlines import silent_until
from mlx_stack_proxy.engine.outcome import Committed
from mlx_stack_proxy.engine.request import Controls, Route
from mlx_stack_proxy.engine.steps import Deliver, DeliverEarlier, Fail, Move, Retry, Step
from mlx_stack_proxy.engine.tier_view import TierView
from mlx_stack_proxy.engine.verdicts import Failure, Verdict
from mlx_stack_proxy.settings import EscalationReason
from mlx_stack_proxy.settings_source import from_mapping
from tests.driver.stepping import (
    BACK_OFF,
    BUSY,
    CHAIN,
    DOUBTED_LOOP,
    EMPTY,
    FAILED,
    INVALID,
    INVALID_REASON,
    LOOP,
    NO_BUDGET,
    OVERFLOW,
    REFUSED,
    SILENT,
    SLIP,
    TEXT,
    THIRD,
    TIMEOUT,
    TRUNCATED,
    Story,
    error_after,
    follows,
    told,
)

ALONE = ("fast",)
NO_TOOLS = Failure("server_error", "no tools", status=400, final=True, lacks="tools")
RATE_LIMITED = Failure("server_error", "slow down", status=429, retry_after=30)
NO_ESCALATION = {"controls": Controls(escalation=False)}
PREMIUM = Move("premium", "")


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
    spent = (verdict, Retry(reason, 3), verdict)
    assert follows(*spent) == Move("standard", reason)
    # Each thing that forbids it:
    others = [r for r in get_args(EscalationReason) if r != reason]
    for forbidden in (
        follows(*spent, **NO_ESCALATION),
        follows(*spent, rules={"escalation": {"enabled": False}}),
        follows(*spent, rules={"escalation": {"escalate_on": others}}),
        follows(FAILED, BACK_OFF, *spent, rules={"escalation": {"max_attempts": 1}}),
        follows(*spent, now=540.0),
        follows(TEXT, *spent),
        follows(Committed(other=True), *spent),
        follows(FAILED, THIRD, *spent),
    ):
        assert isinstance(forbidden, (Fail, Deliver))


def test_the_back_off_doubles_and_heeds_what_the_server_asks_for() -> None:
    waits = []
    for done in range(3):
        found = follows(FAILED, Retry("server_error", done), FAILED)
        assert isinstance(found, Retry)
        waits.append(found.after)
    assert waits == [0.25, 0.5, 1.0]
    found = follows(replace(FAILED, retry_after=4.0))
    assert isinstance(found, Retry) and found.after == 4.0


def test_a_tier_without_tokens_is_left_for_the_next_local_one() -> None:
    hinted = Move("standard", "", hint="a hint")
    assert follows(FAILED, hinted, NO_BUDGET) == Move("longctx", "budget_exceeded", hint="a hint")
    never = {"escalation": {"escalate_on": []}}
    assert follows(NO_BUDGET, rules=never) == Move("standard", "budget_exceeded")
    view = TierView().without(["standard"])
    assert follows(NO_BUDGET, view=view) == Move("longctx", "budget_exceeded")
    for error in (
        error_after(NO_BUDGET, tiers=ALONE),
        error_after(NO_BUDGET, tiers=("fast", "premium")),
        error_after(NO_BUDGET, **NO_ESCALATION),
        error_after(TEXT, NO_BUDGET),
    ):
        assert (error.status, error.type) == (429, "budget_exceeded")


def through(*tiers: str) -> dict[str, Any]:
    """A route on which the cloud is called directly."""
    return {"route": Route(tiers, direct=frozenset({"premium"}))}


@pytest.mark.parametrize(
    ("story", "tiers", "status", "kind"),
    [
        ((REFUSED,), ("premium",), 502, "all_tiers_failed"),
        ((TIMEOUT, PREMIUM, REFUSED), ("fast", "premium"), 502, "all_tiers_failed"),
        ((REFUSED, PREMIUM, REFUSED), ("fast", "premium"), 503, "upstream_unavailable"),
    ],
)
def test_only_litellm_that_is_gone_is_upstream_unavailable(
    story: Story, tiers: tuple[str, ...], status: int, kind: str
) -> None:
    """Not a cloud that is called directly."""
    error = error_after(*story, **through(*tiers))
    assert (error.status, error.type) == (status, kind)


# What has changed while a request waited


def waited(*story: Any, now: float = 1.0, view: TierView | None = None, **asked: Any) -> Any:
    return after_waiting(told(*story, **asked), from_mapping({}), view or TierView(), now)


def test_a_tier_that_failed_while_a_request_waited_for_it_is_left() -> None:
    assert waited() is None
    degraded = TierView(passed_over={"fast": 9.0})
    found = waited(view=degraded)
    assert found.reason == "tier_degraded"
    # Whatever `escalate_on` says: it is as if the request had started past it.
    for rules in ({}, {"escalation": {"escalate_on": ["timeout"]}}):
        assert follows(found, view=degraded, rules=rules) == Move("standard", "tier_degraded")


@pytest.mark.parametrize(
    ("story", "asked", "passed_over"),
    [
        ((), {"tiers": ALONE}, ["fast"]),
        ((), NO_ESCALATION, ["fast"]),
        ((TEXT, FAILED, BACK_OFF), {}, ["fast"]),
        ((FAILED, THIRD), {}, ["longctx"]),
        ((), {}, CHAIN),
    ],
    ids=["one tier", "escalation off", "text is out", "the last", "all failed"],
)
def test_unless_it_is_the_last_one_standing(
    story: Story, asked: dict[str, Any], passed_over: list[str]
) -> None:
    view = TierView(passed_over=dict.fromkeys(passed_over, 9.0))
    assert waited(*story, view=view, **asked) is None


@pytest.mark.parametrize(
    ("client", "now", "goes_on"),
    [(None, 539.9, True), (None, 540.0, False), (30.0, 29.9, True), (30.0, 30.0, False)],
)
def test_none_begins_when_the_time_is_over(client: float | None, now: float, goes_on: bool) -> None:
    found = waited(now=now, client_timeout=client)
    assert (found is None) is goes_on
    if found is not None:
        error = error_after(found, now=now, client_timeout=client)
        assert (error.status, error.type) == (503, "tier_busy")
        assert error.retry_after


@pytest.mark.parametrize(
    ("own", "kind"), [(LOOP, "loop_detected"), (INVALID, "tool_validation_failed")]
)
def test_what_the_model_did_last_names_the_error(own: Verdict, kind: str) -> None:
    error = error_after(own, BACK_OFF, TIMEOUT, tiers=ALONE)
    assert (error.status, error.type) == (422, kind)
    assert len(error.body()["error"]["attempts"]) == 2


ANSWERED_BEFORE = TierView(proven=frozenset({"fast"}))
NO_OTHER = ANSWERED_BEFORE.without(["standard", "longctx"])


@pytest.mark.parametrize(
    "how",
    [{"tiers": ALONE}, {"rules": {"escalation": {"escalate_on": []}}}, {"view": NO_OTHER}],
    ids=["alone", "no other may have it", "no other can take it"],
)
def test_a_call_that_hung_on_the_last_tier_is_made_once_more_where_that_has_answered(
    how: dict[str, Any],
) -> None:
    again = Retry("timeout", 1, last=True)
    assert follows(TIMEOUT, **{"view": ANSWERED_BEFORE, **how}) == again


@pytest.mark.parametrize(
    ("story", "how"),
    [
        ((TIMEOUT,), {"view": TierView()}),  # it has never answered, or failed before, too
        ((TIMEOUT, Retry("timeout", 1), TIMEOUT), {}),
        ((replace(TIMEOUT, fault="nobody"),), {}),  # its client is slow
        ((replace(TIMEOUT, final=True),), {}),  # it would end as this one
        ((FAILED, Retry("server_error", 3), FAILED), {}),
        ((TIMEOUT,), {"view": ANSWERED_BEFORE.without(["fast"])}),  # its budget is used up
        ((*(FAILED, BACK_OFF) * 9, TIMEOUT), {}),
        ((TIMEOUT,), {"client_timeout": 10.5}),
        ((TEXT, TIMEOUT), {}),
        ((SILENT,), {}),
    ],
)
def test_but_no_other_is(story: Story, how: dict[str, Any]) -> None:
    assert isinstance(follows(*story, **{"view": ANSWERED_BEFORE, "tiers": ALONE, **how}), Fail)


# A tier that is silent although its server answers

LATE = 486.0
DEGRADED = TierView(passed_over=dict.fromkeys(("standard", "longctx"), 9.0))


def leaves(*story: Any, **how: Any) -> bool:
    return isinstance(follows(*story, SILENT, **{"now": LATE, **how}), (Move, DeliverEarlier))


@pytest.mark.parametrize(
    ("timeout", "client", "expected"),
    [(540, None, 1486.0), (100, None, 1090.0), (540, 400.0, 1360.0), (540, 600.0, 1486.0)],
)
def test_a_tenth_of_the_time_is_left_to_the_next_tier(
    timeout: float, client: float | None, expected: float
) -> None:
    whole = told(client_timeout=client, started=1000.0)
    settings = from_mapping({"reliability": {"escalation": {"exchange_timeout": timeout}}})
    assert silent_until(whole, settings) == expected


@pytest.mark.parametrize(
    ("story", "how"),
    [
        ((), {"tiers": ALONE}),  # there is no other
        ((TEXT,), {}),
        ((), NO_ESCALATION),
        ((), {"client_timeout": LATE}),
        ((FAILED, BACK_OFF) * 9, {}),  # with the call that runs it is ten
        ((), {"tiers": ("standard", "premium")}),  # a guess is not worth the cloud
        ((), {"rules": {"escalation": {"escalate_on": ["server_error"]}}}),
        ((), {"now": 540.0}),
        ((), {"view": TierView(closed=frozenset({"standard", "longctx"}))}),
        ((), {"view": DEGRADED}),
    ],
)
def test_a_silent_tier_is_left_where_another_would_have_the_request(
    story: Story, how: dict[str, Any]
) -> None:
    assert leaves(*(FAILED, BACK_OFF) * 8)
    assert not leaves(*story, **how)


@pytest.mark.parametrize("doubt", [DOUBTED_LOOP, SLIP])
def test_a_second_opinion_that_does_not_come_keeps_nothing_back(doubt: Verdict) -> None:
    assert leaves(doubt, BACK_OFF, tiers=ALONE)


# By rule: what has happened, what else is so, and the step

FULL, GONE = {"tiers": ("fast", "premium")}, Move("premium", "server_error")
PAST = Move("standard", "server_error")
SLOW = replace(FAILED, retry_after=4.0)
NO_RETRY = {"tool_validation": {"max_retries": 0}}


def passing_over(*tiers: str) -> dict[str, Any]:
    """A view in which these are degraded."""
    return {"view": TierView(passed_over=dict.fromkeys(tiers, 9.0))}


STEPS: list[tuple[str, Story, dict[str, Any], Step | type[Step]]] = [
    ("a degraded tier is not tried again", (FAILED,), passing_over("fast"), PAST),
    (
        "unless alone",
        (FAILED,),
        {**passing_over("fast"), "tiers": ALONE},
        Retry("server_error", 1, after=0.25),
    ),
    ("it is gone past", (TIMEOUT,), passing_over("standard"), Move("longctx", "timeout")),
    ("but not all of them", (TIMEOUT,), {"view": DEGRADED}, Move("standard", "timeout")),
    ("a guess leads past it, too", (SILENT,), passing_over("standard"), Move("longctx", "timeout")),
    ("ten calls leave one for each tier to come", (FAILED, BACK_OFF) * 6 + (INVALID,), {}, Retry),
    ("and no retry of the eighth", (FAILED, BACK_OFF) * 7 + (INVALID,), {}, Move),
    ("a full queue never leads to the cloud", (BUSY,), FULL, Fail),
    ("a timeout does", (TIMEOUT,), FULL, Move("premium", "timeout")),
    (
        "an overflow goes to a larger window",
        (replace(OVERFLOW, window=4096),),
        {"view": TierView(windows={"fast": 4096})},
        Move("standard", "context_overflow"),
    ),
    (
        "that the prompt is too long for `fast` makes `standard` no larger",
        (OVERFLOW,),
        {"view": TierView(windows={"fast": 1})},
        Move("longctx", "context_overflow"),
    ),
    ("the client's own timeout is not over", (TIMEOUT,), {"now": 59.0, "client_timeout": 60}, Move),
    ("it counts where it is shorter", (TIMEOUT,), {"now": 60.0, "client_timeout": 60}, Fail),
    ("LiteLLM is gone: the direct cloud", (REFUSED,), through(*CHAIN, "premium"), GONE),
    (
        "also where that is degraded",
        (REFUSED,),
        {**through(*CHAIN, "premium"), **passing_over("premium")},
        GONE,
    ),
    (
        "a direct cloud that is gone leads on at once",
        (REFUSED,),
        through("premium", "longctx"),
        Move("longctx", "server_error"),
    ),
    ("a retry that can begin is waited for", (SLOW,), {"now": 534.9}, Retry),
    ("one that can't is not: 4 s and the jitter", (SLOW,), {"now": 535.1}, PAST),
    (
        "a bad call may go up once after text that went out",
        (TEXT, INVALID),
        {"rules": NO_RETRY},
        Move("standard", INVALID_REASON, correct=True),
    ),
]


@pytest.mark.parametrize(("rule", "story", "how", "expected"), STEPS, ids=[r for r, *_ in STEPS])
def test_the_step(
    rule: str, story: Story, how: dict[str, Any], expected: Step | type[Step]
) -> None:
    found = follows(*story, **how)
    assert isinstance(found, expected) if isinstance(expected, type) else found == expected
