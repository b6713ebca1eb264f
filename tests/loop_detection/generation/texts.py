"""Texts to watch: words that don't repeat, periodic ones, and the words of the theory."""

from __future__ import annotations

import random
import sys
from collections.abc import Callable, Iterator

from mlx_stack_proxy.loop_detection.generation.flow import Flow
from mlx_stack_proxy.loop_detection.generation.limits import Excess, Kind
from mlx_stack_proxy.settings import GenerationSettings
from mlx_stack_proxy.wire.growing import GrowingText

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


def flowed(
    text: str,
    size: int = 5,
    *,
    kind: Kind = "text",
    late: int = sys.maxsize,
    **rules: object,
) -> Excess | None:
    """What all rules together say of a text that comes in pieces of this size."""
    flow = Flow(GenerationSettings(**rules), kind, late=late)  # type: ignore[arg-type]
    written = GrowingText()
    hits = (fed(flow, written, piece) for piece in pieces(text, size))
    hit = next((hit for hit in hits if hit is not None), None)
    return hit


def fed(flow: Flow, written: GrowingText, piece: str) -> Excess | None:
    """What the watch of a reply does with a piece."""
    written.add(piece)
    return flow.look(written.text()) if written.size >= flow.due else None


def operations(work: Callable[[], object]) -> int:
    """Calls, of Python and of C, that some work takes."""
    count = 0

    def counted(frame: object, event: str, argument: object) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    sys.setprofile(counted)
    try:
        work()
    finally:
        sys.setprofile(None)
    return count
