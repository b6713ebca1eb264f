"""The reading path: every kind of chunk is read, and what a long call holds stays small."""

from __future__ import annotations

from itertools import islice

import pytest

from benchmarks.cost import reading


@pytest.mark.parametrize("name", reading.ROWS)
def test_each_kind_of_chunk_is_read(name: str) -> None:
    make, _ = reading.ROWS[name]
    assert reading.each(list(islice(make(), 30))) > 0


def test_a_call_in_many_pieces_is_held_in_little_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """It held 1.8 kB for each piece."""
    monkeypatch.setattr(reading, "HELD_PIECES", 4_000)
    assert reading.held() < 4_000 * 125 / 1e6  # as 2 MB for 16,000 pieces
