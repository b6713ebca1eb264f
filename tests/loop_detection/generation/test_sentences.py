"""Sentences that are the same but for one word; and texts that get on."""

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
