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
_PROBES = 2  # in a block of 64 characters
_NEW = 4  # times that a probe may come anew in one block
# So many of the 10 times are there, at least, two blocks of 64 characters before the rule fires.
_BEFORE = TIMES - 2
NEAR = PIECE + DISTANCE * TIMES  # characters


class Phrases:
    """What of a growing text has been said nearby; to be asked at each block of 64 characters.

    ``times``: so many equal pieces, at least, are a phrase said often.
    """

    __slots__ = ("_counts", "_times")

    def __init__(self, times: int) -> None:
        self._times = times
        # How often each probe of the newest block, and of the one before, stands nearby.
        self._counts = (TIMES,) * (2 * _PROBES)

    def look(self, text: str, begin: int, end: int) -> bool:
        """Whether the last 18 characters of ``text[begin:end]`` have been there within 800."""
        first = max(end - NEAR, begin)
        probe = text[end - _PROBE : end]
        newest = text.count(probe, first, end)
        other = text.count(text[end - _STEP - _PROBE : end - _STEP], first, end)
        self._counts = (newest, other, *self._counts[:_PROBES])
        # Where it overlaps itself it is counted once.
        return newest > 1 or text.find(probe, max(end - 2 * _PROBE, first), end - 1) >= 0

    @property
    def may_be_said_often(self) -> bool:
        """Whether ``said_often`` could find anything at the block that was looked at last."""
        newest, other, *older = self._counts
        return (
            self._times > TIMES
            or 3 * newest >= self._times
            or max(newest, other, *[count + _NEW for count in older]) >= _BEFORE
        )

    def said_often(
        self, text: str, begin: int, end: int, block: int
    ) -> tuple[int, int, bool] | None:
        """Where it begins, the length of the last lap, and whether laps of some kinds take turns.

        Of ``text[begin:end]``, which is what was looked at last.
        """
        if found := clustered(text, begin, end, self._times):
            return *found, False
        if self._times <= TIMES and (found := self._in_turns(text, begin, end, block)):
            return *found, True
        return None

    def _in_turns(self, text: str, begin: int, end: int, block: int) -> tuple[int, int] | None:
        """Where laps begin that come in turns, and the length of the last.

        gemini-cli's rule would fire within the next ``block`` characters if the text went on like
        that.
        """
        first = max(end - NEAR, begin)
        hopeless = False  # some of the newest block repeats, and not in turns
        for number, counted in enumerate(self._counts):
            stop = end - _STEP * number
            old = number >= _PROBES
            if stop <= first + _PROBE or (hopeless and old):
                break  # else the block may have ended where the laps differ
            if counted + _NEW * old < _BEFORE:
                continue
            if old and text.count(text[stop - _PROBE : stop], first, end) < _BEFORE:
                continue
            laps = _Laps(text, first, end, stop)
            if not laps.may_take_turns():
                hopeless = True
            elif found := laps.turns(block):
                return found
        return None


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
    sizes = {b - a for a, b in pairwise(places)}
    if len(sizes) > KINDS or min(sizes) < CHARACTERS:
        return None
    laps = [text[a:b] for a, b in pairwise(places)]
    kinds = set(laps)
    if len(kinds) > KINDS:
        return None
    if any(laps.count(lap) < 2 for lap in kinds):
        return None
    return places[0], places[-1] - places[-2]


class _Laps:
    """The laps of ``text[first:end]`` that begin with the probe that ends at ``stop``."""

    __slots__ = ("_end", "_first", "_places", "_probe", "_stop", "_text")

    def __init__(self, text: str, first: int, end: int, stop: int) -> None:
        self._text, self._first, self._end, self._stop = text, first, end, stop
        self._probe = text[stop - _PROBE : stop]
        self._places: list[int] = []  # the last of them, once they are wanted

    def may_take_turns(self) -> bool:
        """Whether the last laps speak for it: most texts are told by those few."""
        text, stop = self._text, self._stop
        if len(set(text[max(stop - PIECE, self._first) : stop])) < CHARACTERS:
            return False
        size = stop - _PROBE - text.rfind(self._probe, self._first, stop - 1)
        since = max(stop - size * _BEFORE, self._first)
        if text[since : stop - size] == text[since + size : stop]:
            return False  # laps of one kind
        self._places = places = _last_places(text, self._probe, self._first, self._end, _BEFORE)
        sizes = [b - a for a, b in pairwise(places)]
        kinds = [k for k in range(2, KINDS_IN_TURNS + 1) if sizes[k:] == sizes[:-k]]
        if not kinds:
            return False
        if self._are_equal():
            return True  # told by ``turns``
        places = _last_places(text, self._probe, self._first, self._end, 2 * KINDS_IN_TURNS + 1)
        laps = [text[a:b] for a, b in pairwise(places)]
        return any(_take_turns(laps, _known(laps, k), k) for k in kinds)

    def turns(self, block: int) -> tuple[int, int] | None:
        """Where laps begin that take turns, and the length of the last one.

        None: none do, or the rule doesn't fire within the next ``block`` characters.
        """
        if self._are_equal():
            return None
        text, end = self._text, self._end
        places = _places(text, self._probe, self._first, end)
        laps = [text[a:b] for a, b in pairwise(places)]
        kinds, known = _turns(laps)
        if kinds < 2 or not _take_turns(laps, known, kinds):
            return None
        if min(map(len, laps[-known:])) < CHARACTERS:
            return None
        places = places[-known - 1 :]
        lap = laps[-kinds]  # the one that has begun
        if text[places[-1] : end] != (lap + self._probe)[: end - places[-1]]:
            return None
        fires = _fires(places, laps[-kinds:])
        if fires is None or fires > end + block:
            return None
        return places[0], len(laps[-1])

    def _are_equal(self) -> bool:
        start, stop = self._places[0], self._places[-1]
        size = stop - self._places[-2]
        return self._text[start : stop - size] == self._text[start + size : stop]


def _take_turns(laps: Sequence[str], known: int, kinds: int) -> bool:
    """Whether that many known laps are enough; of two in any order, some seem to take turns."""
    return known + 1 >= _BEFORE and (known >= 2 * kinds or len(set(laps[-kinds:])) == kinds)


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
