"""The breaker: when a tier is taken out, tried again, and back."""

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
from mlx_stack_proxy.escalation.breaker import MAX_COOLDOWN_SECONDS, Breakers
from mlx_stack_proxy.escalation.tier_states import TierStates
from mlx_stack_proxy.settings import DegradeSettings
from mlx_stack_proxy.settings_source import from_mapping
from mlx_stack_proxy.state.sqlite import SqliteStore
from mlx_stack_proxy.state.store import BreakerState, Sizes
from mlx_stack_proxy.telemetry.journal import Journal
from tests.engine.exchanges import client_request
from tests.escalation.calls import OnTier

RULES = DegradeSettings(failures=3, cooldown_seconds=30)


def begun(breakers: Breakers, tier: str, at: float) -> OnTier:
    call = OnTier(tier)
    breakers.begin(call, at)
    return call


@pytest.fixture
def breakers() -> Breakers:
    return Breakers(RULES)


def fails(breakers: Breakers, at: float) -> bool:
    """A call that begins and fails; whether that takes the tier out."""
    call = begun(breakers, "fast", at)
    taken_out = breakers.failed(call, at)
    breakers.end(call)
    return taken_out


def broken(breakers: Breakers, now: float = 100.0) -> Breakers:
    for _ in range(3):
        fails(breakers, now)
    return breakers


def cooling(breakers: Breakers, now: float) -> bool:
    return now < breakers["fast"].until(now)


def test_failures_in_a_row_take_a_tier_out(breakers: Breakers) -> None:
    assert [fails(breakers, 100.0) for _ in range(3)] == [False, False, True]
    assert breakers.passed_over(100.0) == {"fast": 130.0}
    assert breakers["standard"] == BreakerState()


def test_a_success_between_them_starts_the_count_anew(breakers: Breakers) -> None:
    fails(breakers, 1.0)
    fails(breakers, 1.0)
    assert not breakers.succeeded("fast", 1.0)
    assert [fails(breakers, 1.0) for _ in range(3)] == [False, False, True]


def test_one_probe_at_a_time_while_others_go_past(breakers: Breakers) -> None:
    broken(breakers)
    assert not breakers.passed_over(130.0)
    probe = begun(breakers, "fast", 130.0)
    assert probe.probe
    assert breakers.passed_over(130.0) == {"fast": 130.0}
    assert not begun(breakers, "fast", 130.0).probe
    breakers.end(probe)  # it came to nothing: its client left
    assert not breakers.passed_over(130.0)


def test_a_call_during_the_cool_down_is_no_probe(breakers: Breakers) -> None:
    """It is made because no other tier is left, and may take long."""
    broken(breakers)
    early = begun(breakers, "fast", 129.9)
    assert not early.probe
    assert begun(breakers, "fast", 130.0).probe
    breakers.end(early)
    assert breakers.passed_over(130.0) == {"fast": 130.0}, "the probe runs on"


def test_a_probe_that_succeeds_brings_it_back(breakers: Breakers) -> None:
    broken(breakers)
    probe = begun(breakers, "fast", 130.0)
    assert breakers.succeeded("fast", 131.0)
    breakers.end(probe)
    assert breakers["fast"] == BreakerState()
    assert not begun(breakers, "fast", 131.0).probe  # whole: no call on it is a probe


def test_the_cool_down_doubles_up_to_ten_minutes(breakers: Breakers) -> None:
    now, seen = 100.0, []
    broken(breakers, now)
    for _ in range(7):
        seen.append(breakers["fast"].cooldown)
        now = breakers["fast"].degraded_until
        assert fails(breakers, now)
    assert seen == [30, 60, 120, 240, 480, 600, 600] and seen[-1] == MAX_COOLDOWN_SECONDS


def test_what_was_known_before_a_restart_counts(breakers: Breakers) -> None:
    breakers.restore({"fast": BreakerState(5, 130.0, 30.0), "standard": BreakerState()})
    assert breakers.passed_over(129.0) == {"fast": 130.0}
    assert begun(breakers, "fast", 130.0).probe
    assert list(breakers.health) == ["fast"], "what was well has not failed"


def test_a_probe_that_fails_doubles_the_cool_down_once(breakers: Breakers) -> None:
    """Calls that began before the probe was over fail one after the other, and say nothing new."""
    broken(breakers)
    late = [begun(breakers, "fast", at) for at in (100.0, 129.0, 130.0, 131.0)]
    assert breakers.failed(late[2], 135.0)
    assert [breakers.failed(call, 200.0) for call in late] == [False] * 4
    assert breakers["fast"] == BreakerState(4, 195.0, 60.0)


def test_calls_from_before_its_recovery_do_not_take_it_out_again(breakers: Breakers) -> None:
    slow = [begun(breakers, "fast", 99.0) for _ in range(5)]
    broken(breakers)
    assert breakers.succeeded("fast", 140.0)
    assert [breakers.failed(call, 150.0) for call in slow] == [False] * 5
    assert breakers["fast"] == BreakerState()
    assert [fails(breakers, 150.0) for _ in range(3)] == [False, False, True]


def test_other_rules_are_for_what_comes(breakers: Breakers) -> None:
    broken(breakers)
    breakers.adapt(DegradeSettings(failures=1, cooldown_seconds=5))
    assert breakers.passed_over(100.0) == {"fast": 130.0}
    call = begun(breakers, "standard", 100.0)
    assert breakers.failed(call, 100.0)
    assert breakers.passed_over(100.0)["standard"] == 105.0


def test_a_server_that_is_back_is_probed_at_once(breakers: Breakers) -> None:
    broken(breakers)
    assert breakers.answers_again("fast", 110.0)
    assert not breakers.passed_over(110.0)
    assert breakers["fast"].degraded
    assert fails(breakers, 111.0)
    assert breakers["fast"] == BreakerState(4, 171.0, 60.0), "a probe as any other"
    assert not breakers.answers_again("standard", 170.0), "it never failed"


def test_but_once_until_it_answers(breakers: Breakers) -> None:
    """A server that goes at each call comes back each time."""
    broken(breakers)
    assert breakers.answers_again("fast", 110.0)
    assert fails(breakers, 110.0)
    assert not breakers.answers_again("fast", 120.0)
    assert cooling(breakers, 169.0) and not cooling(breakers, 170.0)
    assert breakers.succeeded("fast", 170.0)
    broken(breakers, 180.0)
    assert breakers.answers_again("fast", 190.0)


def test_a_probe_of_the_server_that_was_gone_says_nothing_of_the_next(breakers: Breakers) -> None:
    broken(breakers)
    probe = begun(breakers, "fast", 130.0)
    assert breakers.answers_again("fast", 131.0)
    assert not breakers.failed(probe, 132.0)
    breakers.end(probe)
    assert begun(breakers, "fast", 132.0).probe


def test_one_that_is_not_degraded_has_no_cool_down_to_end(breakers: Breakers) -> None:
    fails(breakers, 100.0)
    assert not breakers.answers_again("fast", 110.0)


def test_a_tier_is_proven_that_failed_once_at_most_since_it_answered(breakers: Breakers) -> None:
    fails(breakers, 1.0)
    assert not breakers.proven, "it never answered"
    breakers.succeeded("fast", 1.0)
    assert breakers.proven == {"fast"}
    fails(breakers, 1.0)
    assert breakers.proven == {"fast"}
    fails(breakers, 1.0)
    assert not breakers.proven
    breakers.adapt(DegradeSettings(failures=1))
    breakers.succeeded("fast", 1.0)
    assert breakers.proven == {"fast"}
    fails(breakers, 2.0)
    assert not breakers.proven, "it is degraded"


def test_a_clock_that_is_put_back_keeps_no_tier_out(breakers: Breakers) -> None:
    hour = 3600.0
    broken(breakers, 1_000_000.0 + hour)
    assert breakers.passed_over(1_000_000.0) == {}
    assert not cooling(breakers, 1_000_000.0)
    assert fails(breakers, 1_000_000.0)  # as a probe
    assert breakers.passed_over(1_000_001.0) == {"fast": 1_000_060.0}


def test_a_clock_that_is_put_back_hides_no_failures(breakers: Breakers) -> None:
    hour = 3600.0
    broken(breakers, 1_000_000.0 + hour)
    breakers.succeeded("fast", 1_000_031.0 + hour)
    assert [fails(breakers, 1_000_000.0) for _ in range(3)] == [False, False, True]


def test_failures_of_what_is_tried_for_want_of_another_prolong_nothing(breakers: Breakers) -> None:
    broken(breakers, 100.0)
    assert not fails(breakers, 110.0)
    assert breakers["fast"].degraded_until == 130.0


def test_a_call_on_a_tier_that_is_not_taken_out_is_no_probe(breakers: Breakers) -> None:
    assert not begun(breakers, "fast", 1.0).probe
    fails(breakers, 1.0)
    assert not begun(breakers, "fast", 1.0).probe


# What the end of a call tells of its tier, and which breakers are written down for it

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
