"""The same phrase again and again, in a text that has no period, or not for long enough.

gemini-cli's rule (``loopDetectionService.ts``): the same 50 characters 10 times, at most 75 apart
on average. Lists and logs, of which each line is another, share long beginnings, too: so the laps
must be of two kinds at most.
"""

from __future__ import annotations

from itertools import pairwise

from ...settings import GenerationSettings
from .fences import Fences
from .found import Found
from .limits import PHRASE_DISTANCE, PHRASE_KINDS, PHRASE_LENGTH, is_signs, phrase_times


class Phrases:
    """Looks for the last characters of a text. Keeps nothing."""

    __slots__ = ("_fences", "_reach", "_times")

    def __init__(self, rules: GenerationSettings, fences: Fences) -> None:
        self._fences = fences
        self._times = phrase_times(rules)
        self._reach = PHRASE_LENGTH + PHRASE_DISTANCE * (self._times - 1)

    def look(self, text: str, offset: int, end: int) -> Found | None:
        """Decide by ``text[:end]``, which begins at ``offset`` of the whole text."""
        first = max(end - self._reach, 0)
        phrase = text[end - PHRASE_LENGTH : end]
        # Phrases may overlap, and `count` doesn't see those.
        if 3 * text.count(phrase, first, end) < self._times or is_signs(phrase):
            return None
        places = _places(text, phrase, first, end)[-self._times :]
        laps = [text[a:b] for a, b in pairwise(places)]
        if len(places) < self._times or len(set(laps)) > PHRASE_KINDS:
            return None
        if is_signs(laps[-1]) or self._fences.is_open(text, offset, end, places[0]):
            return None
        return Found("phrase", offset + places[0], offset + end, laps[-1])


def _places(text: str, phrase: str, first: int, end: int) -> list[int]:
    places = []
    at = text.find(phrase, first, end)
    while at >= 0:
        places.append(at)
        at = text.find(phrase, at + 1, end)
    return places
