"""Two to four tool names in a circle (search, fetch, search, fetch), other arguments each time.

Several names in one reply count one after the other. One name over and over is no circle:
``tool_frequency`` looks at that. Laps that brought something new don't count: a circle begins with
the last of them.
"""

from __future__ import annotations

from collections.abc import Sequence

from ...core.call_keys import digest
from ...core.history import History
from ...settings import LoopDetectionSettings
from . import overrides
from .finding import Finding, State, times
from .progress import Seen, answered


class NameCycle:
    name = "name_cycle"

    def find(self, history: History, rules: LoopDetectionSettings) -> Finding | None:
        turns = history.turns
        if not turns or not any(call.name not in rules.exempt_tools for call in turns[-1].calls):
            return None
        names, places = _names(history, rules)
        calls = rules.tool_calls
        for length in range(calls.name_cycle_min_length, calls.name_cycle_max_length + 1):
            lap = names[-length:]
            warn, hard = overrides.name_cycle(lap, rules)
            periodic = _periodic(names, length)
            if len(set(lap)) < 2 or periodic // length < min(warn, hard):
                continue
            counted = min(periodic, length + _quiet(history, rules))
            laps = counted // length
            if laps < min(warn, hard):
                continue
            level = State.CIRCUIT_BREAK if laps >= hard else State.WARNING
            place = places[-counted]
            return Finding(self.name, level, laps, lap[0], _pattern(lap), _hint(lap, laps), place)
        return None

    def could_break(self, history: History, rules: LoopDetectionSettings) -> bool:
        names, _ = _names(history, rules)
        calls = rules.tool_calls
        for length in range(calls.name_cycle_min_length, calls.name_cycle_max_length + 1):
            lap = names[-length:]
            _, hard = overrides.name_cycle(lap, rules)
            # A reply may bring several names at once, up to a whole lap of them.
            needed = (hard - 1) * length
            if len(set(lap)) < 2 or _periodic(names, length) < needed:
                continue
            if _quiet(history, rules) >= needed - length:
                return True
        return False


def _names(history: History, rules: LoopDetectionSettings) -> tuple[list[str], list[int]]:
    """The names called in this task, oldest first, and the place of the turn of each."""
    names: list[str] = []
    places: list[int] = []
    for turn in history.turns[history.task_start() :]:
        for call in turn.calls:
            if call.name not in rules.exempt_tools:
                names.append(call.name)
                places.append(turn.place)
    return names, places


def _periodic(names: Sequence[str], length: int) -> int:
    """How long the suffix with this period is."""
    count = min(length, len(names))
    while count < len(names) and names[-count - 1] == names[-count - 1 + length]:
        count += 1
    return count


def _quiet(history: History, rules: LoopDetectionSettings) -> int:
    """How many of the newest calls brought nothing new; those not answered yet count with them."""
    start = history.task_start()
    exempt = rules.exempt_tools
    total = sum(c.name not in exempt for turn in history.turns[start:] for c in turn.calls)
    if not rules.tool_calls.require_no_progress:
        return total
    seen = Seen()
    last_news = -1
    for at, (call, result) in enumerate(answered(history, start, exempt)):
        if seen.brings_progress(call, result):
            last_news = at
    return total - last_news - 1


def _pattern(lap: Sequence[str]) -> str:
    first = min([*lap[i:], *lap[:i]] for i in range(len(lap)))
    return f"{digest(*first):016x}"


def _hint(lap: Sequence[str], laps: int) -> str:
    circle = ", ".join(name[:64] for name in lap)
    return (
        f"You have gone round the same circle of tools ({circle}) {times(laps)} without learning "
        "anything new. Do not go round again: take another approach, or answer with what you know."
    )
