"""What of an image is to be written, and in what steps."""

from __future__ import annotations

import orjson
import pytest

from mlx_stack_proxy.state.hourly import HourKey
from mlx_stack_proxy.state.image import MOST_ENTRIES, MOST_EVENTS, MOST_EVENTS_WAITING, Image
from mlx_stack_proxy.state.ledger import Ledger
from mlx_stack_proxy.state.store import BreakerState, Change, Limit, Sizes

LIMITS = [Limit("hour", 100, rolling=True), Limit("session:a", 100, rolling=False)]
ONE_TURN = Change("a", turns=1)
COUNTS = {HourKey(1, "codex", "fast"): {"requests": 2.0}}
EVENT = {"time": 1.0, "kind": "k", "session": ""}


@pytest.fixture
def image() -> Image:
    return Image(Ledger(Sizes(9, 9.0, 9.0, 9)))


def test_what_used_nothing_leaves_no_row(image: Image) -> None:
    assert image.ledger.settle("", dict.fromkeys(LIMITS, 0), 1.0) == {"hour": 0, "session:a": 0}
    assert not image.is_dirty()
    assert image.ledger.settle("", dict.fromkeys(LIMITS, 7), 1.0) == {"hour": 0, "session:a": 0}
    assert image.ledger.settle("", dict.fromkeys(LIMITS, 0), 2.0) == {"hour": 7, "session:a": 7}
    written = [(name, kind) for name, kind, _ in image.take().entries]
    assert written == [("session:a", "purses"), ("hour", "hours")]


def test_a_name_is_written_once_as_it_stands(image: Image) -> None:
    image.write(ONE_TURN, 1.0)
    image.write(ONE_TURN, 2.0)
    image.write(Change("gone", turns=1), 2.0)
    image.ledger.delete("gone")
    batch = image.take()
    ((name, kind, content),) = batch.entries
    assert (name, kind, orjson.loads(content)["turns"]) == ("session:a", "sessions", 2)
    assert batch.gone == [("session:gone", "sessions")]
    assert not image.is_dirty()


def test_what_was_not_written_is_written_as_it_stands_then(image: Image) -> None:
    image.write(ONE_TURN, 1.0)
    image.ledger.breakers["fast"] = BreakerState(1)
    image.write(Change(events=[EVENT], counts=COUNTS), 1.0)
    batch = image.take()
    image.ledger.delete("a")
    image.write(Change(events=[EVENT], counts=COUNTS), 1.0)
    image.put_back(batch)
    again = image.take()
    assert again.gone == [("session:a", "sessions")]
    assert [name for name, _, _ in again.entries] == ["fast", "1\tcodex\tfast"]
    assert orjson.loads(again.entries[1][2]) == {"requests": 4}
    assert [number for number, *_ in again.events] == [1, 2]


def test_a_transaction_takes_so_many(image: Image) -> None:
    for number in range(MOST_ENTRIES - 1):
        image.ledger.settle("", {Limit(f"key:{number}", None, rolling=True): 7}, 1.0)
    image.ledger.breakers["fast"] = BreakerState(1)
    image.ledger.breakers["standard"] = BreakerState(1)
    image.write(Change(events=[EVENT] * (MOST_EVENTS + 1)), 1.0)
    first, second = image.take(), image.take()
    assert [len(first.entries), len(first.events)] == [MOST_ENTRIES, MOST_EVENTS]
    assert [name for name, _, _ in second.entries] == ["standard"]
    assert len(second.events) == 1
    assert not image.is_dirty()


def test_a_row_that_cannot_be_made_takes_no_other_with_it(image: Image) -> None:
    image.write(ONE_TURN, 1.0)
    image.ledger.breakers["fast"] = BreakerState(2**65)
    with pytest.raises(TypeError):
        image.take()
    image.ledger.breakers["fast"] = BreakerState(1)
    assert {name for name, _, _ in image.take().entries} >= {"fast", "session:a"}


def test_events_that_wait_are_bounded(image: Image) -> None:
    image.write(Change(events=[EVENT] * (MOST_EVENTS_WAITING + 5)), 1.0)
    assert image.take().events[0][0] == 6
