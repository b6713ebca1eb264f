"""A tier that says nothing while its server answers: up to when it is waited for."""

from __future__ import annotations

from dataclasses import replace

import pytest

from app.core.exchange import Committed, Controls, Exchange
from app.core.ladder import TierView
from app.core.next_step import may_leave, silent_until
from app.core.verdicts import UpstreamFailed
from app.settings_source import from_mapping
from tests.core.stepping import LOOP, after, climbing, step

LATE = 486.0


def leaves(
    whole: Exchange, now: float = LATE, view: TierView | None = None, **rules: object
) -> bool:
    settings = from_mapping({"reliability": {"escalation": rules}})
    return may_leave(whole, settings, view or TierView(), now)


def test_a_tenth_of_the_exchanges_time_is_left_to_the_next_tier() -> None:
    whole = climbing()
    whole.started = 1000.0
    assert silent_until(whole, from_mapping({})) == 1486.0
    settings = from_mapping({"reliability": {"escalation": {"exchange_timeout": 100}}})
    assert silent_until(whole, settings) == 1090.0


def test_it_is_left_where_another_tier_would_have_the_request() -> None:
    assert leaves(climbing())
    assert leaves(climbing("server_error"))


@pytest.mark.parametrize(
    "whole",
    [
        after(),  # there is no other
        climbing(committed=Committed("Let me look.")),
        climbing(controls=Controls(escalation=False)),
        climbing(client_timeout=LATE),
        climbing("loop_detected", model_failure=replace(LOOP, doubt=True), doubted=True),
        climbing(*["server_error"] * 9),  # with the call that runs it is ten
    ],
    ids=["last", "text", "stays", "client", "opinion", "attempts"],
)
def test_else_not(whole: Exchange) -> None:
    assert not leaves(whole)


def test_nor_where_it_is_forbidden_or_too_late() -> None:
    assert not leaves(climbing(), escalate_on=["server_error"])
    assert not leaves(climbing(), now=540.0)
    assert not leaves(climbing(), view=TierView(closed=frozenset({"standard", "longctx"})))


def test_what_may_be_left_is_left() -> None:
    """The rule that asks beforehand and the one that decides say the same."""
    hung = UpstreamFailed("timeout", "nothing came")
    whole = climbing("timeout")
    assert leaves(whole) and type(step(whole, hung, now=LATE)).__name__ == "Move"
