"""gemini-cli's rule as an oracle: where it fires on a periodic text, ours must have fired before.

Its rule: the same 50 characters, at any place, 10 times, at most 75 apart on average. Not compared
are rulers, fences, tables and JSON, which have limits of their own here, and periods up to 8, which
DESIGN §6 gives 200 characters: a row of 60 equal letters is no runaway yet.
"""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest

from app.stages.loop_detection.generation.lap_kind import Kind, kind_of
from tests.bench import loop_streams
from tests.conftest import IN_CI
from tests.stages.loop_detection.generation.texts import LETTERS, found

CORPUS = Path(__file__).resolve().parents[5] / "shared" / "corpora" / "loops.jsonl"
PIECE, TIMES, DISTANCE = 50, 10, 75
STREAMS = 100 if IN_CI else 1000


def gemini_fires(text: str) -> int | None:
    """The length of text at which gemini-cli's rule fires; None: it doesn't."""
    seen: dict[str, list[int]] = {}
    for at in range(len(text) - PIECE + 1):
        places = seen.setdefault(text[at : at + PIECE], [])
        places.append(at)
        if len(places) >= TIMES and at - places[-TIMES] <= DISTANCE * (TIMES - 1):
            return at + PIECE
    return None


def periodic_stream(source: random.Random) -> str:
    """A beginning, and then a phrase of words again and again."""
    period = source.randint(9, 90)
    letters = source.choice([LETTERS, "abcde", "etaoin shrdlu", LETTERS.upper() + LETTERS])
    words = "".join(
        " " if source.random() < 0.18 else source.choice(letters) for _ in range(period)
    )
    lead = "".join(source.choices(LETTERS + "   ", k=source.randint(0, 700)))
    end = "".join(source.choices(LETTERS + "   ", k=source.randint(0, 200)))
    return lead + words * source.randint(2, 900 // period + 2) + end


def test_ours_fires_before_on_generated_streams() -> None:
    source = random.Random(20_260_601)
    compared = 0
    for _ in range(STREAMS):
        text = periodic_stream(source)
        theirs = gemini_fires(text)
        if theirs is None:
            continue
        compared += 1
        ours = found(text, size=4)
        assert ours is not None, text
        assert ours.end < theirs, (ours.period, theirs)
    assert compared > STREAMS // 3, "the streams must repeat often enough to be compared"


def lines() -> list[dict[str, Any]]:
    if not CORPUS.exists():
        return []
    rows = [json.loads(line) for line in CORPUS.read_text("utf-8").splitlines()]
    return [row for row in rows if row["kind"] == "content_stream"]


@pytest.mark.skipif(not CORPUS.exists() and not IN_CI, reason="no sample cases here")
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
