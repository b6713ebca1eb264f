"""gemini-cli's rule as an oracle: where it fires on a periodic text, ours must have fired before.

Its rule: the same 50 characters, at any place, 10 times, at most 75 apart on average. Not compared
are rulers, fences, tables and JSON, which have limits of their own here, and periods up to 8, which
have 200 characters: a row of 60 equal letters is no runaway yet.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from app.stages.loop_detection.generation.lap_kind import Kind, kind_of
from tests.bench import loop_streams
from tests.bench.corpora import LOOPS
from tests.conftest import IN_CI
from tests.stages.loop_detection.generation.texts import LETTERS, found

PIECE, TIMES, DISTANCE = 50, 10, 75
STREAMS = 50 if IN_CI else 250  # of each kind
HANZI = "助手现在尝试打开名为以下称的文件并读取其中全部内容然后把结果告诉用户"


def gemini_fires(text: str) -> int | None:
    """The length of text at which gemini-cli's rule fires; None: it doesn't."""
    seen: dict[str, list[int]] = {}
    for at in range(len(text) - PIECE + 1):
        places = seen.setdefault(text[at : at + PIECE], [])
        places.append(at)
        if len(places) >= TIMES and at - places[-TIMES] <= DISTANCE * (TIMES - 1):
            return at + PIECE
    return None


ALPHABETS = [LETTERS, "etaoin shrdlu", LETTERS.upper() + LETTERS, HANZI]


def words_of(source: random.Random, size: int, few: Sequence[str] = ()) -> str:
    letters = source.choice([*ALPHABETS, *few])
    return "".join(" " if source.random() < 0.18 else source.choice(letters) for _ in range(size))


def phrase(source: random.Random) -> str:
    return words_of(source, source.randint(9, 90), ["abcde"])


def several_sentences(source: random.Random) -> str:
    """A long beginning, and in turns other endings."""
    beginning = words_of(source, source.randint(40, 70))
    endings = [words_of(source, source.randint(1, 20)) for _ in range(source.randint(2, 5))]
    end = source.choice(["", ". ", ".\n"])
    return "".join(beginning + one + end for one in endings)


def nearly_equal_laps(source: random.Random) -> str:
    """The same sentence some times, and once with a little change."""
    one = words_of(source, source.randint(52, 74))
    at = source.randrange(len(one))
    other = one[:at] + source.choice(["#", "", "over"]) + one[at + 1 :]
    return one * source.randint(1, 3) + other


def list_items(source: random.Random) -> str:
    return source.choice(["- ", "* ", "1. ", "• "]) + words_of(source, source.randint(8, 70)) + "\n"


KINDS = (phrase, several_sentences, nearly_equal_laps, list_items)


def periodic_stream(source: random.Random, laps: str) -> str:
    """A beginning, then these laps again and again, and an end."""
    lead = "".join(source.choices(LETTERS + "   ", k=source.randint(0, 700)))
    end = "".join(source.choices(LETTERS + "   ", k=source.randint(0, 200)))
    return lead + laps * source.randint(2, 1200 // len(laps) + 2) + end


@pytest.mark.parametrize("kind", KINDS)
def test_ours_fires_before_on_generated_streams(kind: Callable[[random.Random], str]) -> None:
    source = random.Random(20_260_601)
    compared = 0
    for _ in range(STREAMS):
        text = periodic_stream(source, kind(source))
        theirs = gemini_fires(text)
        if theirs is None:
            continue
        compared += 1
        ours = found(text, size=4)
        assert ours is not None, text
        assert ours.end < theirs, (ours.period, theirs, text)
    assert compared > STREAMS // 5, "the streams must repeat often enough to be compared"


@pytest.mark.parametrize("endings", [(12, 16, 31), (28, 12, 20, 9), (23, 20, 26), (19, 19, 22)])
def test_ours_fires_before_wherever_the_laps_differ(endings: tuple[int, ...]) -> None:
    """It looks at every 64th character: there the laps may be alike, or just differ."""
    source = random.Random(7)
    beginning = words_of(source, 52)
    turn = "".join(beginning + words_of(source, size) for size in endings)
    for lead in range(0, 64, 3):
        text = "".join(source.choices(LETTERS, k=lead)) + turn * 8
        theirs, ours = gemini_fires(text), found(text, size=4)
        assert theirs is not None
        assert ours is not None
        assert ours.end < theirs, (lead, ours.period, theirs)


def lines() -> list[dict[str, Any]]:
    if not LOOPS.exists():
        return []
    rows = [json.loads(line) for line in LOOPS.read_text("utf-8").splitlines()]
    return [row for row in rows if row["kind"] == "content_stream"]


@pytest.mark.skipif(not LOOPS.exists() and not IN_CI, reason="no sample cases here")
def test_ours_fires_before_on_every_periodic_stream_of_the_corpus() -> None:
    for row in lines():
        items = list(loop_streams.pieces(row["input"]))
        text = "".join(items)
        theirs = gemini_fires(text)
        if theirs is None or kind_of(text[:theirs]) is not Kind.PROSE or "```" in text[:theirs]:
            continue
        upto, at = 0, -1
        while upto < theirs:  # the piece in which theirs fires
            at += 1
            upto += len(items[at])
        ours = loop_streams.run(row["input"])
        assert ours.at is not None, row["id"]
        assert ours.at <= at, row["id"]
