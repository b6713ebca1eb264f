"""Sentences that are the same but for one word, blanks without end, and too much reasoning."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest

from mlx_stack_proxy.loop_detection.generation.limits import SENTENCES
from tests.loop_detection.generation.texts import flowed, prose

DOUBTS = [
    "Wait, let me check the file again. ",
    "Hmm, that doesn't look right. ",
    'Actually, it says "a list". ',
    "But the test expects a string.\n\n",
    "Let me reconsider the approach! ",
    "So the index must be an integer.\n",
    "No, that can't be. ",
]
BEFORE = "The user wants to know how many tests fail. "
WORDS = [word.strip(".") for word in prose(9000, seed=4).split() if len(word) > 3]


def said(sentences: Sequence[str], times: int = 400, seed: int = 1) -> str:
    """Some sentences in no order."""
    return "".join(random.Random(seed).choices(sentences, k=times))


@pytest.mark.parametrize(
    "form",
    [
        "I need to check the {} file before I can go on. ",
        "Let me look at {} again.\n",
        "Attempt {number}: let me run the tests again. ",
        "{number}. Check the logs.\n",
        "Wait. I should look at {} first. Then I go on with it. ",
    ],
)
def test_a_sentence_of_which_one_word_varies(form: str) -> None:
    text = BEFORE + "".join(form.format(word, number=n) for n, word in enumerate(WORDS[:400]))
    hit = flowed(text)
    assert hit is not None
    assert hit.rule == "sentences"
    assert hit.end <= 4 * SENTENCES.characters


@pytest.mark.parametrize(
    "text",
    [
        prose(20_000),
        "".join(f"{one}{prose(40, n)}. " for n, one in enumerate(DOUBTS * 60)),
        "".join(
            f"The capital of {a} is {b}. " for a, b in zip(WORDS[:400], WORDS[400:], strict=False)
        ),
        said(["positive\n", "negative\n", "neutral\n"], 600),
        said([f"| {one.strip()} | 1 |\n" for one in DOUBTS], 200),
        "".join(f"{n}. The {word} house\n" for n, word in enumerate(WORDS[:300])),
        "".join(f"- Look at {word} once more\n" for word in WORDS[:300]),
        "".join(f"def get_{word}(self) -> int: ...\n" for word in WORDS[:300]),
        "".join(f'"{word}" is enabled, has the default, and no more\n' for word in WORDS[:300]),
        "[[6, 7, 4, 5], [6, 7, 4, 5, 6], [7, 4, 5]], " * 10 + prose(500),
        "".join(said(DOUBTS, 20, seed) + prose(3000, seed) for seed in range(20)),
    ],
    ids=[
        "prose",
        "news",
        "capitals",
        "labels",
        "table",
        "names",
        "list",
        "code",
        "lines",
        "data",
        "far",
    ],
)
def test_what_gets_on_or_is_no_prose(text: str) -> None:
    assert flowed(text) is None


STUCK = "".join(f"I need to check the {word} file before I go on. " for word in WORDS[:400])


def test_more_may_be_asked_for() -> None:
    first, later = (flowed(BEFORE + STUCK, min_chars=chars) for chars in (400, 4000))
    assert first is not None
    assert later is not None
    assert later.end > first.end + 1500


def test_less_is_enough_beyond_the_tool_call_limit() -> None:
    usual, late = (flowed(prose(900) + STUCK, late=limit) for limit in (9_999, 900))
    assert usual is not None
    assert late is not None
    assert late.end <= usual.end - 400


# Blanks without end, and too much reasoning


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
