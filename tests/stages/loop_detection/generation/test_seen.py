"""Whether the end of a growing text has been there before: never missed, however it grows."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.stages.loop_detection.generation.seen import PROBE, Seen
from tests.stages.loop_detection.generation.texts import prose


@given(
    st.integers(0, 200),
    st.integers(0, 90),
    st.lists(st.integers(1, 150), min_size=1, max_size=8),
)
def test_an_end_that_was_there_is_never_missed(before: int, between: int, sizes: list[int]) -> None:
    source = random.Random(before)
    filler = "".join(source.choices("abcdefgh", k=before + between + PROBE))
    probe = filler[:PROBE]
    text = filler[PROBE : PROBE + before] + probe + filler[PROBE + before :] + probe
    seen, size = Seen(), 0
    for one in sizes:
        size += one
        seen.may_repeat(text[: min(size, len(text))])
    assert seen.may_repeat(text)


@pytest.mark.parametrize("size", [0, PROBE - 1, PROBE, 2 * PROBE, 5_000])
def test_what_was_not_there_is_not_asked_further(size: int) -> None:
    assert not Seen().may_repeat(prose(size))
