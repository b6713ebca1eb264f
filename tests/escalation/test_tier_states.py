"""What the end of a call tells of its tier, and which breakers are written down for it."""

from __future__ import annotations

from typing import Any

import pytest

from mlx_stack_proxy.engine.outcome import Outcome
from mlx_stack_proxy.engine.tier_view import TierView
from mlx_stack_proxy.engine.verdicts import (
    Failure,
    InvalidToolCall,
    Verdict,
    empty,
    rejected,
)
from mlx_stack_proxy.errors import shutting_down
from mlx_stack_proxy.escalation.tier_states import TierStates
from mlx_stack_proxy.settings_source import from_mapping
from mlx_stack_proxy.state.sqlite import SqliteStore
from mlx_stack_proxy.state.store import BreakerState, Sizes
from mlx_stack_proxy.telemetry.journal import Journal
from tests.engine.exchanges import client_request
from tests.escalation.calls import OnTier

SETTINGS = from_mapping(
    {"reliability": {"escalation": {"degrade": {"failures": 2, "cooldown_seconds": 30}}}}
)
NOW = 1000.0
STORE = SqliteStore(None, Sizes(1, 1.0, 1.0, 1))
FAILS = Failure("server_error", "status 500", status=500)
LACKS = Failure("refused", "no", status=400, fault="client", lacks="tools")
ABOUT_OURS = Failure("refused", "no", status=500, fault="ours")


class Written(Journal):
    """``states``: the breakers' that were to be kept."""

    def __init__(self) -> None:
        super().__init__(STORE, lambda: NOW)
        self.states: list[BreakerState] = []

    def set_breaker(self, tier: str, state: BreakerState) -> None:
        self.states.append(state)


def ended(*verdicts: Verdict | None, tier: str = "fast") -> tuple[TierStates, Written, Any]:
    """After calls that ended so; with the event of the last."""
    journal, event = Written(), None
    states = TierStates(SETTINGS, STORE, journal, lambda: NOW)
    for verdict in verdicts:
        call = OnTier(tier)
        states.begin(call)
        event = states.note(call, Outcome(call.tier, verdict), client_request())
        states.end(call)
    return states, journal, event


@pytest.mark.parametrize(
    ("verdicts", "view", "written"),
    [
        ([FAILS], TierView(), 1),
        ([FAILS, FAILS], TierView({"fast": NOW + 30}), 2),
        ([None], TierView(proven=frozenset({"fast"})), 0),  # what is well is not written again
        ([FAILS, None], TierView(proven=frozenset({"fast"})), 2),
        (
            [Failure("context_overflow", "too long", window=4096, in_field="window")],
            TierView(windows={"fast": 4096}),
            0,
        ),
        ([LACKS] * 3, TierView(lacks={"fast": frozenset({"tools"})}), 0),
        ([ABOUT_OURS] * 3, TierView(), 0),
        ([rejected(shutting_down())] * 3, TierView(), 0),
        ([Failure("timeout", "silence")] * 2, TierView({"fast": NOW + 30}), 2),
        ([Failure("timeout", "LiteLLM hangs", fault="nobody")] * 3, TierView(), 0),
        ([Failure("unreachable", "LiteLLM is gone")] * 3, TierView(), 0),
        ([Failure("refused", "422", fault="client")] * 3, TierView(), 0),
        # A bad reply is the model's quality: its server is well.
        ([FAILS, empty(), FAILS], TierView(proven=frozenset({"fast"})), 3),
        ([FAILS, InvalidToolCall(()), FAILS], TierView(proven=frozenset({"fast"})), 3),
    ],
)
def test_what_a_call_tells(verdicts: list[Any], view: TierView, written: int) -> None:
    states, journal, _ = ended(*verdicts)
    assert states.view() == view
    assert len(journal.states) == written


def test_a_model_that_is_no_tier_has_no_breaker() -> None:
    states, journal, _ = ended(FAILS, FAILS, tier="elsewhere")
    assert (states.view(), journal.states) == (TierView(), [])


def test_the_events_of_its_failures_and_its_return() -> None:
    assert ended(FAILS)[2] is None
    degraded = ("tier_degraded", {"seconds": 30})
    assert ended(FAILS, FAILS)[2] == degraded
    assert ended(FAILS, FAILS, None)[2] == ("tier_recovered", {})


def test_a_server_that_is_back_is_written_once() -> None:
    states, journal, _ = ended(FAILS, FAILS)
    for _ in range(2):
        states.answers_again("fast")
    assert states.view() == TierView()
    assert journal.states[2:] == [BreakerState(2, NOW, 30.0)]
