"""Two rules for inexact repetition: of a phrase, or of sentences that differ in a word.

Each is a function of the end of ``text[:end]``, without state.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import pairwise

from .limits import (
    LATE_SENTENCES,
    MAX_WORDS,
    MIN_WORDS,
    PHRASE_A_LAP,
    PHRASE_DISTANCE,
    PHRASE_KINDS,
    PHRASE_LENGTH,
    SENTENCES,
    Excess,
    RuleContext,
    is_signs,
)

_PROBE = 12  # trailing characters that must occur in every lap
_WORD = re.compile(r"(?<!\S)\S++(?=\s)")
_END = re.compile(r"\w[.?!][\"')*_]*+\s")


def phrase(about: RuleContext, text: str, end: int) -> Excess | None:
    """gemini-cli's rule (``loopDetectionService.ts``): 50 characters 10 times, mostly 75 apart.

    Lines of lists and logs share long beginnings, too, so between occurrences there may be at most
    two different texts.
    """
    times = max(int(PHRASE_A_LAP * about.rules.min_laps), 3)
    search_start = max(end - PHRASE_LENGTH - PHRASE_DISTANCE * (times - 1), 0)
    phrase_text = text[end - PHRASE_LENGTH : end]
    # Occurrences may overlap, which `count` misses.
    if 3 * text.count(phrase_text, search_start, end) < times or is_signs(phrase_text):
        return None
    places = _places(text, phrase_text, search_start, end)[-times:]
    laps = [text[start:stop] for start, stop in pairwise(places)]
    if len(places) < times or len(set(laps)) > PHRASE_KINDS or is_signs(laps[-1]):
        return None
    if about.fences.is_open(text, end, places[0]):
        return None
    return Excess("phrase", places[0], end, laps[-1])


def _places(text: str, phrase: str, search_start: int, end: int) -> list[int]:
    places = []
    place = text.find(phrase, search_start, end)
    while place >= 0:
        places.append(place)
        place = text.find(phrase, place + 1, end)
    return places


def sentences(about: RuleContext, text: str, end: int) -> Excess | None:
    """Compare word by word: "I need to check the a file. I need to check the b file."

    A lap may differ from the previous one in one word. It must contain the end of a sentence,
    because rows, code and list items share words, too.
    """
    row = LATE_SENTENCES if end > about.late else SENTENCES
    enough = max(about.rules.min_chars, row.characters)
    window_start = max(end - 2 * enough, 0)
    if text.count(text[end - _PROBE : end], window_start, end) < SENTENCES.laps:
        return None
    words = _whole_words(text, window_start, end)
    matches: list[re.Match[str]] = []
    for period, laps in _laps(words):
        matches = matches or list(_WORD.finditer(text, window_start, end))
        start, lap_start = matches[-period * laps].start(), matches[-period].start()
        lap = text[lap_start : matches[-1].end() + 1]
        if end - start < enough or _END.search(lap) is None or is_signs(lap):
            continue
        if not about.fences.is_open(text, end, start):
            return Excess("sentences", start, end, lap)
    return None


def _whole_words(text: str, start: int, end: int) -> list[str]:
    """Return the matches of ``_WORD`` in ``text[start:end]``, at a fifth of the cost."""
    words = text[start:end].split()
    if words and not text[end - 1].isspace():
        words.pop()
    if words and start and not (text[start].isspace() or text[start - 1].isspace()):
        del words[0]
    return words


def _laps(words: Sequence[str]) -> Iterator[tuple[int, int]]:
    """Yield pairs: a period in words, and how many of the last laps are alike."""
    for period in range(MIN_WORDS, min(len(words) // SENTENCES.laps, MAX_WORDS) + 1):
        if words[-1] != words[-1 - period] and words[-2] != words[-2 - period]:
            continue  # two words differ, one too many
        laps = 1
        while _is_alike(words, period, laps):
            laps += 1
        if laps >= SENTENCES.laps:
            yield period, laps


def _is_alike(words: Sequence[str], period: int, laps: int) -> bool:
    """Whether the lap before the last ``laps`` laps differs from the next in at most one word."""
    end = len(words) - laps * period
    if end < period:
        return False
    lap, next_lap = words[end - period : end], words[end : end + period]
    return sum([a != b for a, b in zip(lap, next_lap, strict=True)]) <= 1
