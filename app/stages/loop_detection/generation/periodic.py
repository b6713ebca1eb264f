"""Whether a text that comes piece by piece has begun to repeat itself.

A text has *period* p where each character equals the one p before it. :class:`PeriodicText` finds
the first place at which the text's end has had one period for long enough, whatever the period, and
says so at that very character, however the text is cut into pieces.

How: for each scale of periods (a, b], with b from √2·a to 2·a, the last b characters are looked for
at the distances a+1 … b before them, again and again after b/4 to b/2 more. That is one
``str.find`` over less than 2·b characters each time, and in C. The searched piece is at least as
long as any period it could have, so two distances that both match share a divisor that is
a period too (Fine and Wilf, "Uniqueness theorems for periodic functions", Proc. AMS 16, 1965):
there is nothing to choose, and no match is lost. A match is a run (a maximal repetition: Main,
"Detecting leftmost maximal periodicities", Discrete Applied Mathematics 25, 1989): its beginning is
sought backwards once, and then only new characters are compared, until it breaks or is long enough.
A run of period p is known after less than 3·p characters (short ones after p + 192 at most), before
any limit is reached.

In most texts nothing of this is done: the text's last few characters are looked for once, nearby
and, where longer periods are due, further back. Where they have not been there, no probe that ends
with them has.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from ....frozen import frozen
from ....settings import GenerationSettings
from .clusters import NEAR, Phrases
from .fences import Fences
from .lap_kind import Kind, kind_of

# Characters between two searches, and the longest period of the first scale.
BLOCK, FIRST = 64, 32
# A fence's line is looked at for longer than the shortest window.
LEAST_KEPT = 256
# Scales that begin below this double the period; others take a smaller step.
WIDE = 256
_RATIO = 2**0.5
# The limits that are not settings; docs/loops.md has all of them.
SHORT_PERIOD, SHORT_CHARS = 8, 200
LONG_PERIOD, LONG_LAPS = 1000, 3
LIST_FACTOR = 2
DATA_CHARS = 2000
# gemini-cli's rule: the same 50 characters 10 times. A phrase said so often is enough before
# ``min_chars``, which this many of its own characters stand for.
_SAID, _SAID_CHARS, _OF_MIN_CHARS = 9, 49, 400
_TIMES = 2.5  # so often ``min_laps`` are the 10 times of that rule
# What of a run is looked at to say what kind of text it is: so many laps, or characters if longer.
_KIND_LAPS, _KIND_CHARS = 2, 160


@frozen
class Repetition:
    """``text[start:end]`` repeats every ``period`` characters; indices into the whole text.

    ``lap``: the last ``period`` characters. Where laps of two kinds alternate, the last one counts.
    """

    period: int
    start: int
    end: int
    lap: str

    @property
    def laps(self) -> int:
        return (self.end - self.start) // self.period


@dataclass(slots=True)
class _Run:
    """A repetition that goes on. ``checked``: its end so far. ``due``: where it may be enough."""

    period: int
    start: int
    checked: int
    due: int


@frozen
class _Scale:
    """Periods from ``low`` + 1 to ``high``, looked for at every ``every``-th block."""

    low: int
    high: int
    every: int


class PeriodicText:
    """Takes a text in pieces; memory is bounded by ``window_chars`` and the piece that came last.

    A run that began more than ``window_chars`` before it was found counts from there. ``least``:
    characters that are no repetition yet, whatever repeats; so much text counts as data.
    """

    __slots__ = (
        "_break",
        "_due",
        "_due_scales",
        "_fences",
        "_least",
        "_length",
        "_offset",
        "_phrases",
        "_rules",
        "_runs",
        "_text",
    )

    def __init__(self, rules: GenerationSettings, *, least: int = 0) -> None:
        self._rules = rules
        self._least = least
        self._due_scales = _due_scales(rules)
        self._fences = Fences()
        self._phrases = Phrases(max(int(_TIMES * rules.min_laps), 3))
        self._text = ""
        self._offset = 0  # of `_text` in the whole text
        self._length = 0
        self._due = BLOCK
        self._runs: dict[int, _Run] = {}
        self._break = -1  # from here on 64 characters hold the last end of a run, or a beginning

    @property
    def due(self) -> int:
        """The length of text up to which nothing can be decided: feeding can wait until then."""
        return self._due

    def feed(self, piece: str) -> Repetition | None:
        """Take more text; the first repetition that is long enough, once there is one."""
        text, self._text = self._text, ""
        text += piece  # grows where it stands, for nothing else holds it
        self._text = text
        del text
        self._length += len(piece)
        while self._due <= self._length:
            found = self._look(self._due)
            if found is not None:
                return found
        kept = max(self._rules.window_chars, LEAST_KEPT)
        surplus = len(self._text) - 2 * kept
        if surplus > 0:
            self._forget(surplus + kept - BLOCK)
        return None

    def _look(self, upto: int) -> Repetition | None:
        """Decide by the first ``upto`` characters alone."""
        if self._runs:
            self._follow_runs(upto)
        at_block = upto % BLOCK == 0
        if at_block:
            end = upto - self._offset
            begin = max(end - self._rules.window_chars, 0)
            repeats = self._phrases.look(self._text, begin, end)
            self._search(upto, begin, near=repeats)
        self._due = upto - upto % BLOCK + BLOCK
        if self._runs and (run := self._long_enough(upto)) is not None:
            return self._found(run.start, run.period, upto)
        return self._said_often(upto) if at_block and self._phrases.may_be_said_often else None

    def _long_enough(self, upto: int) -> _Run | None:
        """The shortest run that is long enough; else the next due is set."""
        for run in sorted(self._runs.values(), key=lambda run: run.period):
            if run.due <= upto:
                run.due = run.start + self._needed(run, upto)
                if run.due <= upto:
                    return run
            self._due = min(self._due, run.due)
        return None

    def _said_often(self, upto: int) -> Repetition | None:
        if self._least or self._is_fenced(upto, upto):
            return None
        end = upto - self._offset
        begin = max(end - self._rules.window_chars, 0)
        found = self._phrases.said_often(self._text, begin, end, BLOCK)
        if found is None:
            return None
        start, period, in_turns = found
        kind = kind_of(self._text[start:end])
        if kind is not Kind.PROSE and not (in_turns and kind is Kind.LIST):
            return None
        return self._found(start + self._offset, period, upto)

    def _is_fenced(self, start: int, upto: int) -> bool:
        """Whether the text from ``start`` on is in a fence, as known at the last block."""
        self._fences.read(self._text, self._offset, upto - upto % BLOCK)
        return self._fences.holds(start)

    def _found(self, start: int, period: int, upto: int) -> Repetition:
        end = upto - self._offset
        return Repetition(period, start, upto, self._text[end - period : end])

    def _follow_runs(self, upto: int) -> None:
        """Drop the runs that broke."""
        text, offset = self._text, self._offset
        broken = []
        for period, run in self._runs.items():
            start, end = run.checked - offset, upto - offset
            if text[start:end] == text[start - period : end - period]:
                run.checked = upto
            else:
                broken.append(period)
        for period in broken:
            self._break = self._runs.pop(period).checked

    def _search(self, upto: int, begin: int, *, near: bool) -> None:
        """Look for runs. ``near``: the text's end has been there within the last 800 characters."""
        block = upto // BLOCK
        due = self._due_scales[min((block & -block).bit_length(), len(self._due_scales)) - 1]
        text = self._text
        end = upto - self._offset
        if not due or not (near or self._is_far(due[-1].high, end, begin)):
            return
        for scale in due:
            high = scale.high
            if end - begin <= scale.low + high:
                break  # all further scales are longer
            tail = self._tail(upto, scale) if self._runs else 0
            if tail >= high:
                continue  # by the theorem above only multiples of that period can be found
            first = max(end - 2 * high, begin)
            probe = text[end - high : end]
            # `rfind` compares backwards, `find` forwards: the one that leaves the run sooner. In
            # the first scale, which holds a period and its multiples, the nearest is the period.
            back = 0 < tail < high // 2 or not scale.low
            at = self._mark(upto - high, high - 2 * BLOCK) if high > WIDE else -1
            if at >= 0:
                found = _found_by(text, probe, at, first, end - scale.low - 1, back=back)
            else:
                find = text.rfind if back else text.find
                found = find(probe, first, end - scale.low - 1)
            if found >= 0:
                self._add_run(end - high - found, upto, begin)

    def _is_far(self, high: int, end: int, begin: int) -> bool:
        """Whether the text's end has been further back than is near, but within two of ``high``."""
        first, last = max(end - 2 * high, begin), end - NEAR + FIRST
        if last - first <= FIRST:
            return False
        return self._text.find(self._text[end - FIRST : end], first, last) >= 0

    def _mark(self, start: int, most: int) -> int:
        """Where in the probe that begins at ``start`` 64 characters stand by which to look for it.

        A long run in it would be compared in full at every place, its beginning or end not. -1: no
        such place within the first ``most``.
        """
        begun = max([run.start for run in self._runs.values()], default=0) - BLOCK // 2
        for place in (begun, self._break):
            if 0 <= place - start <= most:
                return place - start
        return -1

    def _tail(self, upto: int, scale: _Scale) -> int:
        """How many of the last characters have a shorter period, a lap before them too.

        Long runs would make ``str.find`` compare every place in full. A run of this very scale is
        all that can be found of it.
        """
        tail = 0
        for run in self._runs.values():
            if scale.low < run.period <= scale.high:
                return scale.high
            if run.period <= scale.low:
                tail = max(tail, upto - run.start - run.period)
        return tail

    def _add_run(self, period: int, upto: int, begin: int) -> None:
        if period in self._runs:
            return
        start = _run_start(self._text, upto - self._offset, period, begin) + self._offset
        for run in self._runs.values():
            if period % run.period == 0 and run.start <= start:
                return  # a run of 3 characters is one of 6, 9, … too
        due = start + limit_of(self._rules, period)
        self._runs[period] = _Run(period, start, upto, due)
        self._break = max(self._break, start - BLOCK // 2)

    def _needed(self, run: _Run, upto: int) -> int:
        """The characters that are enough for what this run is."""
        limit = strict_limit_of(self._rules, run.period)
        end = upto - self._offset
        begin = max(end - self._rules.window_chars, 0)
        size = min(max(_KIND_LAPS * run.period, _KIND_CHARS), upto - run.start, end - begin)
        start = max(run.start - self._offset, begin)
        before = self._text[max(start - _KIND_CHARS, begin) : start]
        # Fences are known as far as the last block: of the lap that ends there.
        fenced = self._is_fenced(upto - upto % BLOCK - run.period, upto)
        kind = kind_of(self._text[end - size : end], before, run.period)
        if kind is Kind.BLANK:  # it has a limit of its own (`whitespace.py`): asked again later
            return upto - run.start + limit
        if fenced or self._least or kind is Kind.DATA:
            return max(DATA_CHARS, self._least, LONG_LAPS * run.period, limit)
        return limit_of(self._rules, run.period, LIST_FACTOR if kind is Kind.LIST else 1)

    def _forget(self, characters: int) -> None:
        self._fences.read(self._text, self._offset, self._length - self._length % BLOCK)
        self._text = self._text[characters:]
        self._offset += characters


def _found_by(text: str, probe: str, at: int, first: int, end: int, *, back: bool) -> int:
    """As ``find(probe, first, end)`` or ``rfind``, by the 64 characters at this index of it."""
    mark = probe[at : at + BLOCK]
    find = text.rfind if back else text.find
    low, high = first + at, end - len(probe) + at + BLOCK
    while (hit := find(mark, low, high)) >= 0:
        if text.startswith(probe, hit - at):
            return hit - at
        if back:
            high = hit + BLOCK - 1
        else:
            low = hit + 1
    return -1


@lru_cache(maxsize=16)
def scales(rules: GenerationSettings) -> tuple[_Scale, ...]:
    """The scales for all periods that fit the window three times.

    A run of period p is found p + high characters after its beginning, or one search later; that
    must be before its limit. The searches of a scale are as far apart as there is room for it. At
    worst a search compares (high - low) places in full, so long scales are narrow.
    """
    longest = rules.window_chars // 3
    found: list[_Scale] = []
    low, high = 0, min(FIRST, longest)
    while True:
        room = min(limit_of(rules, period) - period for period in range(low + 1, high + 1)) - high
        every = 1
        while 2 * every * BLOCK <= room:
            every *= 2
        if found:
            every = max(every, found[-1].every)
        found.append(_Scale(low, high, every))
        if high >= longest:
            return tuple(found)
        low = high
        high = min(2 * low if low < WIDE else int(_RATIO * low), longest)


@lru_cache(maxsize=16)
def _due_scales(rules: GenerationSettings) -> tuple[tuple[_Scale, ...], ...]:
    """The scales that are due at blocks divisible by 1, 2, 4, … and by no more."""
    known = scales(rules)
    powers = range(known[-1].every.bit_length())
    return tuple(tuple(one for one in known if one.every <= 1 << power) for power in powers)


def limit_of(rules: GenerationSettings, period: int, factor: int = 1) -> int:
    """The characters of plain prose that are enough for a period; ``factor``: of lists, twice."""
    strict = factor * strict_limit_of(rules, period)
    if SHORT_PERIOD < period <= LONG_PERIOD:
        said = (_SAID * period + _SAID_CHARS) * rules.min_chars // _OF_MIN_CHARS
        return min(strict, max(rules.min_laps * period, said))
    return strict


def strict_limit_of(rules: GenerationSettings, period: int) -> int:
    """The same without gemini-cli's rule."""
    if period <= SHORT_PERIOD:
        return SHORT_CHARS
    if period <= LONG_PERIOD:
        return max(rules.min_laps * period, rules.min_chars)
    return LONG_LAPS * period


def _run_start(text: str, end: int, period: int, begin: int) -> int:
    """The lowest index ≥ ``begin`` from which on ``text[:end]`` has the period.

    Steps grow while they fit, then halve: only new characters are compared.
    """
    left = end
    step, growing = BLOCK, True
    while step:
        step = min(step, left - period - begin)
        fits = text[left - step : left] == text[left - period - step : left - period]
        if fits:
            left -= step
        growing = growing and fits
        if growing:
            step *= 2
        else:
            step = (step + 1) // 2 if step > 1 else 0
    return left - period
