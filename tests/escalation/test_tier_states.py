"""What is known of the tiers is the same whether or not there is nearly nothing to know."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from mlx_stack_proxy.engine.verdicts import UpstreamFailed
from mlx_stack_proxy.escalation.breaker import Breakers
from mlx_stack_proxy.escalation.ladder import TierView
from mlx_stack_proxy.escalation.learned import FORGET_SECONDS, LearnedLimits
from mlx_stack_proxy.escalation.tier_states import TierStates
from mlx_stack_proxy.settings_source import from_mapping
from mlx_stack_proxy.state.sqlite import SqliteStore
from mlx_stack_proxy.state.store import BreakerState
from mlx_stack_proxy.telemetry.journal import Journal
from tests.engine.exchanges import client_request

SETTINGS = from_mapping(
    {"reliability": {"escalation": {"degrade": {"failures": 2, "cooldown_seconds": 30}}}}
)
TIERS = ("fast", "standard")
REQUEST = client_request()
FAILURES = {
    "fails": UpstreamFailed("server_error", "status 500", status=500),
    "overflows": UpstreamFailed("context_overflow", "too long", status=400, window=4096),
    "lacks": UpstreamFailed("server_error", "no", status=400, client_fault=True, lacks="tools"),
    "refuses words of ours": UpstreamFailed("server_error", "no", status=500, about_ours=True),
}
EVENTS = (*FAILURES, "answers", "comes back", "waits", "is probed", "was degraded")


STORE = SqliteStore(None, max_sessions=1, session_ttl=1, events_ttl=1, max_events=1)


class Written(Journal):
    """``tiers``: whose breakers were to be kept."""

    def __init__(self) -> None:
        super().__init__(STORE, lambda: 1.0)
        self.tiers: list[str] = []

    def set_breaker(self, tier: str, state: BreakerState) -> None:
        self.tiers.append(tier)


@given(st.lists(st.tuples(st.sampled_from(EVENTS), st.sampled_from(TIERS)), max_size=12))
async def test_the_view_has_all_that_is_known(events: list[tuple[str, str]]) -> None:
    now = 1000.0
    journal = Written()
    states = TierStates(SETTINGS, STORE, journal, lambda: now)
    breakers, learnt = Breakers(SETTINGS.reliability.escalation.degrade), LearnedLimits()
    for event, tier in events:
        call, other = states.begin(tier), breakers.begin(tier, now)
        assert call == other
        kept = len(journal.tiers)
        if event == "answers":
            failed = tier in breakers.failing()
            states.note(call, None, REQUEST)
            breakers.succeeded(tier, now)
            assert (len(journal.tiers) > kept) is failed, "what is well is not written again"
        elif event == "comes back":
            states.answers_again(tier)
            breakers.answers_again(tier, now)
        elif event == "waits":
            now += FORGET_SECONDS / 2
        elif event == "was degraded":
            known = {tier: BreakerState(2, now + 9.0, 30.0)}
            states._breakers.restore(known)
            breakers.restore(known)
        elif event in FAILURES:
            states.note(call, FAILURES[event], REQUEST)
            learnt.take(tier, FAILURES[event], REQUEST, now)
            if event == "fails":
                breakers.failed(other, now)
        assert states.view() == TierView(
            breakers.passed_over(now),
            learnt.windows(now),
            learnt.lacks(now),
            proven=breakers.proven(),
        )
        if event != "is probed":
            states.end(call)
            breakers.end(other)


def test_nothing_new_is_made_while_all_is_well() -> None:
    states = TierStates(SETTINGS, STORE, Written(), lambda: 0.0)
    states.note(states.begin("fast"), None, REQUEST)
    assert states.view() is states.view()
