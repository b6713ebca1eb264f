"""Texts to watch: words that don't repeat, periodic ones, and the words of the theory."""

from __future__ import annotations

import random
from collections.abc import Iterator

from app.settings import GenerationSettings
from app.stages.loop_detection.generation.flow import Flow, Found
from app.stages.loop_detection.generation.periodic import PeriodicText, Repetition

LETTERS = "etaoinshrdlucmfwypvbgkjqxz"


def prose(characters: int, seed: int = 0) -> str:
    """Words made of letters, no two sentences alike."""
    source = random.Random(seed)
    words: list[str] = []
    size = 0
    while size <= characters:
        word = "".join(source.choices(LETTERS, k=source.randint(1, 9)))
        if source.random() < 0.1:
            word += ". "
        words.append(word)
        size += len(word) + 1
    return " ".join(words)[:characters]


def lap(period: int, seed: int = 0) -> str:
    """A text of this length that has no shorter period."""
    return "".join(random.Random(seed).sample(LETTERS, 1)) if period == 1 else _lap(period, seed)


def _lap(period: int, seed: int) -> str:
    found = prose(period, seed)
    return found[:-1] + ("~" if period < 4 else "Z")  # once in a lap: no shorter period


def fibonacci(length: int) -> str:
    """The Fibonacci word: full of squares and cubes, never periodic."""
    shorter, longer = "a", "ab"
    while len(longer) < length:
        shorter, longer = longer, longer + shorter
    return longer[:length]


def thue_morse(length: int) -> str:
    """The Thue-Morse word: squares, but nothing more than twice in a row."""
    return "".join("ab"[at.bit_count() % 2] for at in range(length))


def pieces(text: str, size: int) -> Iterator[str]:
    return (text[at : at + size] for at in range(0, len(text), size))


def found(text: str, size: int = 5, **rules: object) -> Repetition | None:
    """What PeriodicText says of a text that comes in pieces of this size."""
    watch = PeriodicText(GenerationSettings(**rules))  # type: ignore[arg-type]
    return next((hit for hit in map(watch.feed, pieces(text, size)) if hit is not None), None)


def flowed(
    text: str,
    size: int = 5,
    *,
    reasoning: bool = False,
    due: int | None = None,
    **rules: object,
) -> Found | None:
    """What Flow, which is all watchers together, says of it. ``due``: of the first look."""
    flow = Flow(GenerationSettings(**rules), reasoning=reasoning)  # type: ignore[arg-type]
    flow.due = flow.due if due is None else due
    hits = (fed(flow, piece) for piece in pieces(text, size))
    return next((hit for hit in hits if hit is not None), None)


def fed(flow: Flow, piece: str) -> Found | None:
    """What the watch of a reply does with a piece."""
    flow.waiting.append(piece)
    flow.length += len(piece)
    return flow.look() if flow.length >= flow.due else None
