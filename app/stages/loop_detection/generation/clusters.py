"""A phrase said again and again in a text that is not quite periodic.

gemini-cli's rule (``loopDetectionService.ts``): the same 50 characters 10 times, at most 75 apart
on average. It also fires where laps of two kinds alternate, long before the text as a whole has
been repeated. Ours asks for fewer kinds of laps than theirs (5), since logs and lists share long
beginnings, and for words: what else is made of so few characters has to be periodic.
"""

from __future__ import annotations

from collections import Counter
from itertools import pairwise

PIECE = 50
DISTANCE = 75  # between two of them, on average, at most
KINDS = 2  # of laps between them, at most, each more than once: a change is no second kind
CHARACTERS = 8  # different ones in a piece, at least, and the length of the shortest lap


def clustered(text: str, begin: int, end: int, times: int) -> tuple[int, int] | None:
    """Where the first of so many equal pieces begins, and the length of the last lap.

    Of ``text[begin:end]``; the last piece ends at ``end``. None: there are not so many, or they are
    too far apart.
    """
    first = max(end - PIECE - DISTANCE * (times - 1), begin)
    piece = text[end - PIECE : end]
    # Pieces may overlap, and `count` doesn't see those: every third one is enough to look closer.
    if " " not in piece or 3 * text.count(piece, first, end) < times:
        return None
    if len(set(piece)) < CHARACTERS:
        return None
    places = []
    at = text.find(piece, first, end)
    while at >= 0:
        places.append(at)
        at = text.find(piece, at + 1, end)
    places = places[-times:]
    if len(places) < times:
        return None
    laps = Counter(text[a:b] for a, b in pairwise(places))
    if len(laps) > KINDS or min(laps.values()) < 2 or min(map(len, laps)) < CHARACTERS:
        return None
    return places[0], places[-1] - places[-2]
