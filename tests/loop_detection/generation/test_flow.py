"""Blanks without end, and too much reasoning."""

from __future__ import annotations

import pytest

from tests.loop_detection.generation.texts import flowed, prose


@pytest.mark.parametrize("blank", [" ", "\n", "\t", " \n", "\r\n", "\u00a0", "\n    "])
@pytest.mark.parametrize("size", [1, 7, 4000])
def test_whitespace_that_never_ends(blank: str, size: int) -> None:
    hit = flowed("Done." + blank * (1200 // len(blank)), size)
    assert hit is not None
    assert hit.start == 5
    assert 513 <= hit.end - hit.start <= 576
    assert flowed("Done." + blank * (500 // len(blank)) + "x" + prose(200), size) is None


@pytest.mark.parametrize("escape", ["\\n", "\\t", "\\r\\n", "\n"])
def test_in_arguments_it_is_escaped(escape: str) -> None:
    begun = '{"path": "a.py", "content": "x = 1'
    hit = flowed(begun + escape * 600, kind="arguments")
    assert hit is not None
    assert hit.end - hit.start <= 600
    fine = begun + escape * 120 + "y" + r"\\n" * 300 + r"C:\\new\\table" + '"}'
    assert flowed(fine, kind="arguments") is None, "a backslash that is written is no blank"


def test_reasoning_is_counted_in_tokens() -> None:
    assert flowed(prose(400), kind="reasoning", max_reasoning_tokens=100) is None
    hit = flowed(prose(600), kind="reasoning", max_reasoning_tokens=100)
    assert hit is not None
    assert hit.rule == "reasoning"
    assert flowed(prose(6000), max_reasoning_tokens=100) is None, "an answer may be long"


@pytest.mark.parametrize("tags", [("<think>", "</think>"), ("[THINK]", "[/THINK]")])
@pytest.mark.parametrize("size", [1, 64, 5000])
def test_reasoning_in_the_text_is_counted_up_to_its_end(tags: tuple[str, str], size: int) -> None:
    opener, closer = tags
    closed = f"\n{opener}{prose(350)}{closer}{prose(2000)}"
    assert flowed(closed, size, max_reasoning_tokens=100) is None
    assert flowed(f"\n{opener}{prose(600)}", size, max_reasoning_tokens=100) is not None
    spoken = f"He wrote {opener} and {prose(600)}"
    assert flowed(spoken, size, max_reasoning_tokens=100) is None
