"""When a text is looked at for the first time."""

from __future__ import annotations

from typing import Any

import pytest

from app.settings import GenerationSettings
from app.stages.loop_detection.generation.flow import EndlessWhitespace, Flow, TooMuchReasoning
from app.stages.loop_detection.generation.periodic import BLOCK
from tests.stages.loop_detection.generation.texts import flowed, found, prose

RULES: list[dict[str, Any]] = [
    {},
    {"min_laps": 2},
    {"min_laps": 2, "min_chars": 1},
    {"min_chars": 100},
    {"min_chars": 350},
    {"window_chars": 64},
]
LAPS = [prose(200)[:size] for size in (1, 2, 5, 8, 9, 10, 12, 17, 25, 33, 40, 47, 64)]


@pytest.mark.parametrize("rules", RULES, ids=str)
@pytest.mark.parametrize("before", [0, 7, 40])
def test_nothing_is_found_later_than_by_looking_at_each_block(
    rules: dict[str, Any], before: int
) -> None:
    """The very same is: where it ends is told by the text, not by the look."""
    due = Flow(GenerationSettings(**rules)).due
    for lap in LAPS:
        for size in (lap, f"{lap[::-1]}, {lap}"):
            text = prose(300)[100 : 100 + before] + size * (1600 // len(size) + 4)
            hit = found(text, 1, **rules)
            assert flowed(text, 1, **rules) == hit
            assert hit is None or hit.end >= due or due == BLOCK
            # A reply that streams is looked at sooner, for its calls.
            assert flowed(text, 7, due=BLOCK, **rules) == hit


@pytest.mark.parametrize(
    ("rules", "due"),
    [
        ({}, 128),
        ({"min_laps": 2, "min_chars": 1}, BLOCK),
        ({"max_trailing_whitespace": 90}, 90),
        ({"max_trailing_whitespace": 5}, BLOCK),
        ({"max_reasoning_tokens": 100}, 100),
        ({"max_reasoning_tokens": 1}, BLOCK),
    ],
)
def test_the_first_look_is_when_something_could_be_found(rules: dict[str, Any], due: int) -> None:
    assert Flow(GenerationSettings(**rules)).due == due
    assert Flow(None).due == BLOCK


def test_limits_shorter_than_two_blocks_are_noticed_where_they_are_passed() -> None:
    assert flowed(" " * 200, 1, max_trailing_whitespace=90) == EndlessWhitespace(0, 91)
    flow = Flow(GenerationSettings(max_reasoning_tokens=100), reasoning=True)
    flow.waiting.append("😀" * 101)
    flow.length += 101
    assert flow.length >= flow.due
    assert flow.look() == TooMuchReasoning(100)
