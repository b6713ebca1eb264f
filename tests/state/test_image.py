"""What of a state counts, and what was never used is not in it."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from app.core.breaker import BreakerState
from app.core.budgets import Limit
from app.state.image import Image
from app.state.ledger import Ledger
from app.state.store import SessionDelta

LIMITS = [Limit("hour", 100, rolling=True), Limit("session:a", 100, rolling=False)]


def image() -> Image:
    return Image(
        lambda changes: Ledger(max_sessions=9, window_size=9, session_ttl=9.0, changes=changes)
    )


@given(st.lists(st.sampled_from(["turn", "hour", "session", "breaker"]), max_size=6))
def test_how_many_entries_count(events: list[str]) -> None:
    one = image()
    for number, event in enumerate(events):
        if event == "turn":
            one.ledger.commit(f"session-{number}", SessionDelta(turns=1), 1.0)
        elif event == "breaker":
            one.set_breaker(f"tier-{number}", BreakerState(1))
        else:
            limit = Limit(f"{event}:{number}", None, rolling=event == "hour")
            one.ledger.settle("", {limit: 7}, 1.0)
    assert one.live == sum(map(len, one.names().values()))


def test_what_used_nothing_leaves_no_entry() -> None:
    one = image()
    assert one.ledger.settle("", dict.fromkeys(LIMITS, 0), 1.0) == {"hour": 0, "session:a": 0}
    assert not one.live and not one.is_dirty()
    assert one.ledger.settle("", dict.fromkeys(LIMITS, 7), 1.0) == {"hour": 0, "session:a": 0}
    assert one.ledger.settle("", dict.fromkeys(LIMITS, 0), 2.0) == {"hour": 7, "session:a": 7}
