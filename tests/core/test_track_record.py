"""Where a tier is known to lose its way, and that it gets another chance."""

from __future__ import annotations

import pytest

from mlx_stack_proxy.escalation.track_record import MAX_TURN, PROBE_EVERY, TrackRecord
from tests.core.exchanges import client_request


def recorded(turn: int, exchanges: int, moved_up: int) -> TrackRecord:
    record = TrackRecord(0.1)
    for number in range(exchanges):
        record.note("fast", turn, moved_up=number >= exchanges - moved_up)
    return record


def foreseen(record: TrackRecord, turn: int, tier: str = "fast") -> int:
    """How often out of eight exchanges are not tried on the tier."""
    fails = [record.fails(tier, turn) for _ in range(PROBE_EVERY)]
    return sum(failing and not record.is_probe(tier, turn) for failing in fails)


@pytest.mark.parametrize(
    ("exchanges", "moved_up", "expected"),
    [(5, 5, True), (4, 4, False), (29, 5, True), (30, 5, False), (100, 10, False), (68, 10, True)],
)
def test_how_often_is_too_often(exchanges: int, moved_up: int, expected: bool) -> None:
    assert bool(foreseen(recorded(3, exchanges, moved_up), 3)) is expected


def test_each_eighth_is_tried_all_the_same() -> None:
    assert foreseen(recorded(3, 20, 20), 3) == PROBE_EVERY - 1


@pytest.mark.parametrize(("turn", "expected"), [(0, 0), (2, 0), (3, 7), (4, 7), (500, 7)])
def test_who_is_lost_once_is_lost_from_there_on(turn: int, expected: int) -> None:
    record = recorded(3, 20, 20)
    for deeper in range(4, 12):
        record.note("fast", deeper, moved_up=False)
    assert foreseen(record, turn) == expected
    assert foreseen(record, turn, "standard") == 0


def test_a_task_begins_where_it_should_whatever_was_seen() -> None:
    assert foreseen(recorded(0, 100, 100), 0) == 0
    assert foreseen(recorded(0, 100, 100), 3) == 0


def test_who_does_well_again_is_trusted_again() -> None:
    record = recorded(3, 300, 300)
    for _ in range(19):
        record.note("fast", 3, moved_up=False)
    record.note("fast", 3, moved_up=True)
    for _ in range(19):
        record.note("fast", 3, moved_up=False)
    assert foreseen(record, 3)
    record.note("fast", 3, moved_up=False)
    assert not foreseen(record, 3)


@pytest.mark.parametrize("depth", [2, 4, 8, 16])
def test_it_comes_back_however_long_the_tasks_are(depth: int) -> None:
    record = recorded(1, 20, 20)
    for _ in range(20 * PROBE_EVERY):
        for turn in range(depth):
            if not record.fails("fast", turn) or record.is_probe("fast", turn):
                record.note("fast", turn, moved_up=False)
    assert not any(record.fails("fast", turn) for turn in range(depth))


def test_another_model_has_no_record() -> None:
    record = recorded(3, 20, 20)
    record.forget("standard")
    assert foreseen(record, 3)
    record.forget("fast")
    assert not foreseen(record, 3)


def test_it_can_be_turned_off_and_says_what_changes() -> None:
    off, on = TrackRecord(1.0), TrackRecord(0.1)
    assert {off.note("fast", 3, moved_up=True) for _ in range(50)} == {None}
    assert not off.fails("fast", 3)
    said = [on.note("fast", 3, moved_up=True) for _ in range(6)]
    assert said == [None] * 4 + [True, None]
    assert [on.note("fast", 3, moved_up=False) for _ in range(20)][-2:] == [None, False]


def test_what_was_long_ago_counts_less() -> None:
    record = recorded(3, 1_000, 0)
    for _ in range(40):
        record.note("fast", 3, moved_up=True)
    assert foreseen(record, 3)


USER = {"role": "user", "content": "Do it."}
CALLS = {"role": "assistant", "content": None, "tool_calls": []}
RESULT = {"role": "tool", "tool_call_id": "c", "content": "done"}


@pytest.mark.parametrize(
    ("messages", "turn"),
    [
        ([USER], 0),
        ([{"role": "system", "content": "x"}], 0),
        ([USER, CALLS, RESULT], 1),
        ([USER, CALLS, RESULT, RESULT, CALLS, RESULT], 2),
        ([USER, CALLS, RESULT, CALLS, USER], 0),
        ([USER, CALLS, RESULT, USER, CALLS, RESULT, USER], 2),  # surroundings beside results
        ([CALLS, CALLS], 2),
        ([USER, *[CALLS, RESULT] * 100], MAX_TURN),
    ],
)
def test_how_far_a_task_has_come(messages: list[dict[str, object]], turn: int) -> None:
    assert client_request(messages=messages).turn == turn
