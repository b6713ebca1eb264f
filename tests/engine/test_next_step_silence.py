"""When a tier that is silent although its server answers is left for another, and when not."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from mlx_stack_proxy.engine.deadlines import silent_until
from mlx_stack_proxy.engine.exchange import Exchange
from mlx_stack_proxy.engine.next_step import next_step
from mlx_stack_proxy.engine.outcome import Committed
from mlx_stack_proxy.engine.request import Controls
from mlx_stack_proxy.engine.steps import DeliverEarlier, Fail, Move
from mlx_stack_proxy.engine.verdicts import InvalidToolCall, UpstreamFailed
from mlx_stack_proxy.escalation.ladder import TierView
from mlx_stack_proxy.settings_source import from_mapping
from tests.engine.stepping import (
    INVALID,
    LOOP,
    TIMEOUT,
    after,
    climbing,
    running,
    step,
)

LATE = 486.0
DEGRADED = TierView(passed_over=dict.fromkeys(("standard", "longctx"), 9.0))
SILENT = UpstreamFailed("timeout", "nothing came", silent=True)


def leaves(
    whole: Exchange, now: float = LATE, view: TierView | None = None, **rules: object
) -> bool:
    settings = from_mapping({"reliability": {"escalation": rules}})
    ended = running(whole).ended_with(SILENT, called=True)
    found = next_step(ended, settings, view or TierView(), now)
    return isinstance(found, (Move, DeliverEarlier))


@pytest.mark.parametrize(
    ("timeout", "client", "expected"),
    [(540, None, 1486.0), (100, None, 1090.0), (540, 400.0, 1360.0), (540, 600.0, 1486.0)],
)
def test_a_tenth_of_the_time_is_left_to_the_next_tier(
    timeout: float, client: float | None, expected: float
) -> None:
    whole = climbing(client_timeout=client, started=1000.0)
    settings = from_mapping({"reliability": {"escalation": {"exchange_timeout": timeout}}})
    assert silent_until(whole, settings) == expected


@pytest.mark.parametrize("attempts", [0, 1, 8])
def test_it_is_left_where_another_tier_would_have_the_request(attempts: int) -> None:
    whole = climbing(*["server_error"] * attempts)
    assert leaves(whole)
    assert step(whole, SILENT, now=LATE) == Move("standard", "timeout")


@pytest.mark.parametrize(
    ("whole", "how"),
    [
        (after(), {}),  # there is no other
        (climbing(committed=Committed("Let me look.")), {}),
        (climbing(controls=Controls(escalation=False)), {}),
        (climbing(client_timeout=LATE), {}),
        (climbing(*["server_error"] * 9), {}),  # with the call that runs it is ten
        (climbing(tiers=("standard", "premium")), {}),  # a guess is not worth the cloud
        (climbing(), {"escalate_on": ["server_error"]}),
        (climbing(), {"now": 540.0}),
        (climbing(), {"view": TierView(closed=frozenset({"standard", "longctx"}))}),
        (climbing(), {"view": DEGRADED}),
    ],
)
def test_else_not(whole: Exchange, how: dict[str, Any]) -> None:
    assert not leaves(whole, **how)


def test_nor_for_tiers_that_are_degraded() -> None:
    assert isinstance(step(climbing("timeout"), SILENT, view=DEGRADED), Fail)
    assert isinstance(step(climbing("timeout"), TIMEOUT, view=DEGRADED), Move)  # that is no guess
    view = TierView(passed_over={"standard": 9.0})
    assert leaves(climbing(), view=view)
    assert step(climbing("timeout"), SILENT, view=view) == Move("longctx", "timeout")


@pytest.mark.parametrize(
    "doubt", [replace(LOOP, doubt=True), replace(INVALID, doubt=True, ask_next=True)]
)
def test_a_second_opinion_that_does_not_come_keeps_nothing_back(
    doubt: InvalidToolCall,
) -> None:
    assert leaves(after("loop_detected", model_failure=doubt))


def test_a_silent_tier_has_no_last_try() -> None:
    view = TierView(proven=frozenset({"fast"}))
    assert isinstance(step(after("timeout"), SILENT, view=view), Fail)
