"""When a text is looked at for the first time; blanks without end, and too much reasoning."""

from __future__ import annotations

from typing import Any

import pytest

from app.settings import GenerationSettings
from app.stages.loop_detection.generation.flow import EndlessWhitespace, Flow, TooMuchReasoning
from app.stages.loop_detection.generation.periodic import BLOCK, Repetition
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


# Whitespace


@pytest.mark.parametrize("blank", [" ", "\n", "\t", " \n", "\r\n", "\u00a0", "\n    "])
@pytest.mark.parametrize("size", [1, 7, 4000])
def test_whitespace_that_never_ends(blank: str, size: int) -> None:
    text = "Done." + blank * (1200 // len(blank))
    hit = flowed(text, size)
    assert hit == EndlessWhitespace(5, 5 + 513)


def test_whitespace_inside_a_piece_is_seen_too() -> None:
    text = "a" + "\n" * 513 + "b" + prose(200)
    assert flowed(text, 4000) == flowed(text, 3) == EndlessWhitespace(1, 514)
    assert flowed("a" + "\n" * 512 + "b" + prose(200), 4000) is None


def test_whitespace_has_its_own_limit_everywhere() -> None:
    assert flowed("```\n" + " " * 510 + "x") is None
    assert flowed("x" + " \n" * 150 + "y", max_trailing_whitespace=290) is not None


# Reasoning


def test_reasoning_is_counted_in_tokens() -> None:
    rules = {"max_reasoning_tokens": 100}
    assert flowed(prose(400), reasoning=True, **rules) is None
    assert isinstance(flowed(prose(600), reasoning=True, **rules), TooMuchReasoning)
    assert flowed(prose(6000), **rules) is None, "an answer may be long"


@pytest.mark.parametrize("tags", [("<think>", "</think>"), ("[THINK]", "[/THINK]")])
def test_reasoning_in_the_text_is_counted_up_to_its_end(tags: tuple[str, str]) -> None:
    opener, closer = tags
    rules = {"max_reasoning_tokens": 100}
    assert flowed(f"\n{opener}{prose(350)}{closer}{prose(2000)}", **rules) is None
    assert isinstance(flowed(f"\n{opener}{prose(600)}", **rules), TooMuchReasoning)
    assert flowed(f"He wrote {opener} and {prose(600)}", **rules) is None


REASONED = {
    "closed too late": "<think>" + prose(600) + "</think>The answer is 4. " + prose(200),
    "closed in time": "<think>" + prose(380) + "</think>The answer is 4. " + prose(200),
    "a loop behind it": "\n\n<think>" + prose(450) + "and so on and so on we go " * 60,
    "a loop before it": "<think>" + "so on we go " * 30 + prose(600),
    "two bytes a letter": "<think>" + "".join(map(chr, range(0x3B1, 0x3B1 + 300))) + "</think>",
    "blanks first": " " * 61 + "<think>" + prose(500),
}


@pytest.mark.parametrize("name", REASONED)
def test_the_pieces_make_no_difference_to_reasoning(name: str) -> None:
    text = REASONED[name]
    whole = flowed(text, len(text), max_reasoning_tokens=100)
    assert (whole is None) == (name == "closed in time")
    assert isinstance(whole, Repetition) == (name == "a loop before it")
    for size in (1, 5, 7, 64, 100, 450):
        assert flowed(text, size, max_reasoning_tokens=100) == whole
    reasoning = flowed(text, len(text), reasoning=True, max_reasoning_tokens=100)
    assert flowed(text, 5, reasoning=True, max_reasoning_tokens=100) == reasoning is not None
