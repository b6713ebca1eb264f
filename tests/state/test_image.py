"""What of an image is to be written, and in what steps."""

from __future__ import annotations

import pytest

from app.core.breaker import BreakerState
from app.core.budgets import Limit
from app.state.image import MOST_EVENTS_WAITING, MOST_ROWS, Image
from app.state.ledger import Ledger
from app.state.rows import Batch
from app.state.store import SessionDelta

LIMITS = [Limit("hour", 100, rolling=True), Limit("session:a", 100, rolling=False)]
ONE_TURN = SessionDelta(turns=1)
EVENT = {"time": 1.0, "kind": "k", "session": ""}


@pytest.fixture
def image() -> Image:
    return Image(
        lambda changes: Ledger(max_sessions=9, window_size=9, session_ttl=9.0, changes=changes)
    )


def names(batch: Batch) -> dict[str, list[str]]:
    return {table: [row[0] for row in rows] for table, rows in batch.rows.items()}


def test_what_used_nothing_leaves_no_row(image: Image) -> None:
    assert image.ledger.settle("", dict.fromkeys(LIMITS, 0), 1.0) == {"hour": 0, "session:a": 0}
    assert not image.is_dirty()
    assert image.ledger.settle("", dict.fromkeys(LIMITS, 7), 1.0) == {"hour": 0, "session:a": 0}
    assert image.ledger.settle("", dict.fromkeys(LIMITS, 0), 2.0) == {"hour": 7, "session:a": 7}
    assert names(image.take()) == {"hours": ["hour"], "purses": ["session:a"]}


def test_a_name_is_written_once_as_it_stands(image: Image) -> None:
    image.ledger.commit("a", ONE_TURN, 1.0)
    image.ledger.commit("a", ONE_TURN, 2.0)
    image.ledger.commit("gone", ONE_TURN, 2.0)
    image.ledger.delete("gone")
    batch = image.take()
    ((name, turns, *_),) = batch.rows["sessions"]
    assert (name, turns) == ("a", 2)
    assert batch.gone == {"sessions": ["gone"]}
    assert not image.is_dirty()


def test_what_was_not_written_is_written_as_it_stands_then(image: Image) -> None:
    image.ledger.commit("a", ONE_TURN, 1.0)
    image.set_breaker("fast", BreakerState(1))
    image.add_events([EVENT])
    batch = image.take()
    image.ledger.delete("a")
    image.add_events([EVENT])
    image.put_back(batch)
    again = image.take()
    assert again.gone == {"sessions": ["a"]}
    assert names(again) == {"breakers": ["fast"], "events": [1, 2]}


def test_a_transaction_takes_so_many_of_each(image: Image) -> None:
    for number in range(MOST_ROWS + 1):
        image.set_breaker(f"tier-{number}", BreakerState(1))
        image.add_events([EVENT])
    first, second = image.take(), image.take()
    assert [len(rows) for rows in first.rows.values()] == [MOST_ROWS, MOST_ROWS]
    assert [len(rows) for rows in second.rows.values()] == [1, 1]
    assert not image.is_dirty()


def test_a_row_that_cannot_be_made_takes_no_other_with_it(image: Image) -> None:
    image.ledger.commit("a", ONE_TURN, 1.0)
    image.ledger.settle("", {LIMITS[1]: 2**65}, 1.0)
    with pytest.raises(TypeError):
        image.take()
    image.ledger.delete("a")
    assert image.take().gone == {"sessions": ["a"], "purses": ["session:a"]}


def test_a_new_file_lacks_all(image: Image) -> None:
    image.ledger.commit("a", ONE_TURN, 1.0)
    image.ledger.settle("", dict.fromkeys(LIMITS, 7), 1.0)
    image.set_breaker("fast", BreakerState(1))
    written = names(image.take())
    image.all_changed()
    assert names(image.take()) == written


def test_events_that_wait_are_bounded(image: Image) -> None:
    image.add_events([EVENT] * (MOST_EVENTS_WAITING + 5))
    assert names(image.take())["events"][0] == 6
