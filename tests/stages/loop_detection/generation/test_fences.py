"""Fences, read in whatever steps."""

from __future__ import annotations

from hypothesis import example, given
from hypothesis import strategies as st

from app.stages.loop_detection.generation.fences import Fences

PARTS = st.sampled_from(["```", "~~~", "````", "`", "\n", "js", " a ", "x" * 30, " " * 79])


def state(text: str, steps: list[int]) -> tuple[list[bool], str]:
    """Whether the text is in a fence from each place on, and what reading on would begin with."""
    fences = Fences()
    for upto in [*sorted({step - step % 64 for step in steps if step < len(text)}), len(text)]:
        fences.read(text[:upto], 0, upto)
    places = [fences.holds(start) for start in range(len(text))]
    fences.read(text + "\n", 0, len(text) + 1)
    return places, str([fences.holds(start) for start in range(len(text))])


@given(st.lists(PARTS, max_size=40), st.lists(st.integers(0, 900), max_size=20))
@example(
    ["```", " " * 79, "x" * 30, "`", "\n"], [64, 128]
)  # a line that is too long to see at once
def test_the_steps_make_no_difference(parts: list[str], steps: list[int]) -> None:
    text = "".join(parts)
    assert state(text, steps) == state(text, [])
