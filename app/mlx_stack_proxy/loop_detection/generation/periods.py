"""Detects, character by character, whether a growing text has begun to repeat itself.

A text has *period* p where each character equals the one p before it. At every 64th character the
rule searches for earlier occurrences of the text's last 32 or more characters, the nearest first.
The distance to an occurrence is a candidate period. Comparing backwards from there shows where the
repetition began, and so how many laps it has; ``limits`` says how many are too many.

The search reaches back 256 characters at each check, 512 at every second, 1,024 at every fourth,
and so on. So all checks together take linear time, and a lap is found before its third occurrence.
"""

from __future__ import annotations

from .limits import Excess, Place, RuleContext, characters, is_signs, place_of_signs

BLOCK = 64  # characters between two checks
PROBE = 32  # the smallest number of characters to search for
_REACH_OF_PROBE = 16  # the search's reach divided by this, if that is more
# How far back laps are searched. A third of it, 5,461 characters, is the longest lap: reported ones
# have 405 tokens (Rapid-MLX#3270) and 92 lines (llama.cpp).
WINDOW_CHARS = 16_384
_REACH = 4  # how far back a search reaches, as a multiple of the length's lowest set bit
_MAX_PLACES = 16  # occurrences that are compared in one check
_LEAD = 80  # characters before a run that show what it belongs to
_BLANK_ESCAPES = ("\\n", "\\r", "\\t")


class Periods:
    """The rule for exact repetitions."""

    def __init__(self, about: RuleContext) -> None:
        self._about = about
        self._rules = about.rules
        self._periods: tuple[int, ...] = ()  # the periods of the text's end
        self.due = 0  # the length at which the first of these runs is too long; 0: no runs
        self.laps = 0  # the laps at the text's end

    def __call__(self, text: str, end: int) -> Excess | None:
        """Return a repetition at the end of ``text[:end]`` that is too long."""
        runs = self._runs(text, end)
        self._periods = tuple(runs)
        self.due = self.laps = 0
        for period, start in runs.items():
            enough = self._limit_of(text, start, end, period)
            if end - start >= enough:
                return Excess("period", start, end, text[end - period : end])
            due = start + enough
            self.due = min(self.due or due, due)
            self.laps = max(self.laps, (end - start) // period)
        return None

    def _runs(self, text: str, end: int) -> dict[int, int]:
        """Return the periods of the text's end, each with the index where its run begins."""
        window_start = max(end - WINDOW_CHARS, 0)
        runs: dict[int, int] = {}
        for period in self._periods:
            start = _start(text, window_start, end, period)
            if end - start >= 2 * period:
                runs[period] = start
        if end % BLOCK:
            return runs  # a check between blocks, for a known period that is due
        reach = min(_REACH * (end & -end), WINDOW_CHARS // 3)
        size = max(PROBE, reach // _REACH_OF_PROBE)
        probe, stop = text[end - size : end], end - 1
        search_start = max(end - size - reach, window_start)
        for _ in range(_MAX_PLACES):
            place = text.rfind(probe, search_start, stop)
            if place < 0:
                break
            stop = place + size - 1
            period = end - size - place
            start = _start(text, window_start, end, period)
            if end - start >= 2 * period:
                runs.setdefault(period, start)
                stop = min(stop, start + size)  # occurrences after `start` are in this run
        return runs

    def _limit_of(self, text: str, start: int, end: int, period: int) -> int:
        """Return from how many characters on this run is too long."""
        late = end > self._about.late
        enough = characters(self._rules, "text", period, late=late)
        if end - start < enough:
            return enough  # too short for any place
        lap = text[end - period : end]
        if _is_blank(lap):
            return self._rules.max_trailing_whitespace + 1
        return characters(self._rules, self._place_of(text, start, end, lap), period, late=late)

    def _place_of(self, text: str, start: int, end: int, lap: str) -> Place:
        if self._about.kind == "arguments":
            return "arguments"
        if self._about.fences.is_open(text, end, end - len(lap)):
            return "code"
        if not is_signs(lap):
            return "text"
        return place_of_signs(lap, text[max(start - _LEAD, 0) : start])


def _is_blank(lap: str) -> bool:
    """Whether a lap is whitespace, including JSON's escapes; it may begin within an escape."""
    if "\\" not in lap:
        return not lap.strip()
    laps = lap * 3
    for escape in _BLANK_ESCAPES:
        laps = laps.replace(escape, "")
    return len(laps.strip()) <= 2


def _start(text: str, window_start: int, end: int, period: int) -> int:
    """Return the lowest index, at least ``window_start``, where the period's run to ``end`` begins.

    The steps double while the text matches, then halve.
    """
    matched_from = end
    step, growing = BLOCK, True
    while step:
        step = min(step, matched_from - period - window_start)
        matches = (
            text[matched_from - step : matched_from]
            == text[matched_from - period - step : matched_from - period]
        )
        if matches:
            matched_from -= step
        growing = growing and matches
        if growing:
            step *= 2
        else:
            step = (step + 1) // 2 if step > 1 else 0
    return matched_from - period
