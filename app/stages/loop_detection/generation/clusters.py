"""A phrase said again and again in a text that is not quite periodic, or not for long enough yet.

gemini-cli's rule (``loopDetectionService.ts``): the same 50 characters 10 times, at most 75 apart
on average. It also fires where laps of several kinds alternate, long before the text as a whole has
been repeated. Ours asks that up to 5 kinds come in turns, always in the same order, or that there
are no more than 2: logs and lists, of which each line is another, share long beginnings, too.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

PIECE = 50
DISTANCE = 75  # between two of them, on average, at most
TIMES = 10
KINDS = 2  # of laps between them, at most, each more than once: a change is no second kind
KINDS_IN_TURNS = 5
CHARACTERS = 8  # different ones in a piece, at least, and the length of the shortest lap


# A phrase of 50 characters holds one of the pieces of 18 that end at every 32nd.
_PROBE, _STEP = 18, 32
# So many of the 10 times are there, at least, two blocks of 64 characters before the rule fires.
_BEFORE = TIMES - 2


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
    places = _last_places(text, piece, first, end, times)
    if len(places) < times:
        return None
    laps = [text[a:b] for a, b in pairwise(places)]
    kinds = set(laps)
    if len(kinds) > KINDS or min(map(len, kinds)) < CHARACTERS:
        return None
    if any(laps.count(lap) < 2 for lap in kinds):
        return None
    return places[0], places[-1] - places[-2]


def in_turns(text: str, begin: int, end: int, block: int) -> tuple[int, int] | None:
    """Where laps begin that come in turns, and the length of the last.

    Of ``text[begin:end]``, where gemini-cli's rule would fire within the next ``block`` characters
    if the text went on like that; this is to be asked at each block.
    """
    first = max(end - PIECE - DISTANCE * TIMES, begin)
    hopeless = False  # some of the newest block repeats, and not in turns
    for stop in range(end, max(end - 2 * block, first + _PROBE), -_STEP):
        if hopeless and stop <= end - block:
            break  # else the block may have ended where the laps differ
        probe = text[stop - _PROBE : stop]
        if text.count(probe, first, end) < _BEFORE:
            continue
        if len(set(text[max(stop - PIECE, first) : stop])) < CHARACTERS:
            hopeless = True
            continue
        size = stop - _PROBE - text.rfind(probe, first, stop - 1)
        since = max(stop - size * _BEFORE, first)
        is_run = text[since : stop - size] == text[since + size : stop]  # laps of one kind
        if is_run or not _may_be_turns(text, probe, first, end):
            hopeless = True
            continue
        places = _places(text, probe, first, end)
        laps = [text[a:b] for a, b in pairwise(places)]
        kinds, known = _turns(laps)
        if kinds < 2 or known + 1 < _BEFORE or min(map(len, laps[-known:])) < CHARACTERS:
            continue
        if known < 2 * kinds and len(set(laps[-kinds:])) < kinds:
            continue  # of two kinds in any order, some seem to come in turns
        places = places[-known - 1 :]
        lap = laps[-kinds]  # the one that has begun
        if text[places[-1] : end] != (lap + probe)[: end - places[-1]]:
            continue
        fires = _fires(places, laps[-kinds:])
        if fires is not None and fires <= end + block:
            return places[0], len(laps[-1])
    return None


def _places(text: str, piece: str, first: int, end: int) -> list[int]:
    places = []
    at = text.find(piece, first, end)
    while at >= 0:
        places.append(at)
        at = text.find(piece, at + 1, end)
    return places


def _last_places(text: str, piece: str, first: int, end: int, most: int) -> list[int]:
    """The last of them, at most so many, in their order."""
    places: list[int] = []
    stop = end
    while len(places) < most and (at := text.rfind(piece, first, stop)) >= 0:
        places.append(at)
        stop = at + len(piece) - 1
    return places[::-1]


def _may_be_turns(text: str, probe: str, first: int, end: int) -> bool:
    """Whether the last laps speak for some number of kinds: most texts are told by those few."""
    places = _last_places(text, probe, first, end, 2 * KINDS_IN_TURNS + 1)
    laps = [text[a:b] for a, b in pairwise(places)]
    last = laps[1 - _BEFORE :]
    for kinds in range(2, KINDS_IN_TURNS + 1):
        if last[kinds:] != last[:-kinds]:
            continue  # too few: seen faster than counted
        known = _known(laps, kinds)
        if known + 1 >= _BEFORE and (known >= 2 * kinds or len(set(laps[-kinds:])) == kinds):
            return True
    return False


def _turns(laps: Sequence[str]) -> tuple[int, int]:
    """How many laps make a turn, and how many of the last laps follow it; (0, 0): none do."""
    best = 0, 0
    for kinds in range(1, min(KINDS_IN_TURNS, len(laps) - 1) + 1):
        known = _known(laps, kinds)
        if known > max(best[1], kinds):
            best = kinds, known
    return best


def _known(laps: Sequence[str], kinds: int) -> int:
    """How many of the last laps follow a turn of so many."""
    known = kinds
    while known < len(laps) and laps[-known - 1] == laps[-known - 1 + kinds]:
        known += 1
    return known


def _fires(places: Sequence[int], turn: Sequence[str]) -> int | None:
    """Where the rule fires, at the earliest, if the laps go on in turns; None: it never does."""
    ahead = list(places)
    for at in range(2 * TIMES):
        ahead.append(ahead[-1] + len(turn[at % len(turn)]))
    left = _alike([lap[::-1] for lap in reversed(turn)])
    if left + _alike(turn) < PIECE:
        return None
    for one, last in zip(ahead, ahead[TIMES - 1 :], strict=False):
        if last - one <= DISTANCE * (TIMES - 1):
            return last - min(left, PIECE) + PIECE
    return None


def _alike(turn: Sequence[str]) -> int:
    """How many characters from its beginning on are the same in each lap, and what follows it."""
    size = PIECE + DISTANCE
    # Two laps of 8 characters are the least.
    long = [("".join([*turn[at:], *turn[:at]]) * 8)[:size] for at in range(len(turn))]
    return next((at for at, here in enumerate(zip(*long, strict=True)) if len(set(here)) > 1), size)
