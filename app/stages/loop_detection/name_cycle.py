"""Two to four tool names in a circle (search, fetch, search, fetch), other arguments each time.

Several names in one reply count one after the other. One name over and over is no circle:
``tool_frequency`` looks at that.
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
        names, places = _names(history, rules)
        turns = history.turns
        if not turns or not names or not turns[-1].calls or places[-1] != turns[-1].place:
            return None
        calls = rules.tool_calls
        for length in range(calls.name_cycle_min_length, calls.name_cycle_max_length + 1):
            lap = names[-length:]
            laps = _laps(names, length)
            if len(set(lap)) < 2 or laps < 2:
                continue
            warn, hard = overrides.name_cycle(lap, rules)
            if laps < warn or _brings_progress(history, length, rules):
                continue
            level = State.CIRCUIT_BREAK if laps >= hard else State.WARNING
            return Finding(
                self.name,
                level,
                laps,
                lap[0],
                _pattern(lap),
                _hint(lap, laps),
                places[-length * laps],
            )
        return None

    def could_break(self, history: History, rules: LoopDetectionSettings) -> bool:
        names, _ = _names(history, rules)
        calls = rules.tool_calls
        for length in range(calls.name_cycle_min_length, calls.name_cycle_max_length + 1):
            lap = names[-length:]
            _, hard = overrides.name_cycle(lap, rules)
            # A reply may bring several names at once, up to a whole lap of them.
            needed = (hard - 1) * length
            if len(set(lap)) < 2 or len(names) < needed:
                continue
            if _periodic(names, length) >= needed and not _brings_progress(history, length, rules):
                return True
        return False


def _names(history: History, rules: LoopDetectionSettings) -> tuple[list[str], list[int]]:
    """The newest names of this task, oldest first, and the place of the turn of each."""
    patience = [rules.tool_calls.name_cycle_hard]
    patience += [own.name_cycle_hard or 0 for own in rules.tool_calls.overrides.values()]
    most = rules.tool_calls.name_cycle_max_length * (max(patience) + 1)
    names: list[str] = []
    places: list[int] = []
    for position in range(len(history.turns) - 1, history.task_start() - 1, -1):
        turn = history.turns[position]
        for call in reversed(turn.calls):
            if call.name not in rules.exempt_tools:
                names.append(call.name)
                places.append(turn.place)
        if len(names) >= most:
            break
    return names[::-1], places[::-1]


def _periodic(names: Sequence[str], length: int) -> int:
    """How long the suffix with this period is."""
    count = min(length, len(names))
    while count < len(names) and names[-count - 1] == names[-count - 1 + length]:
        count += 1
    return count


def _laps(names: Sequence[str], length: int) -> int:
    return _periodic(names, length) // length


def _brings_progress(history: History, length: int, rules: LoopDetectionSettings) -> bool:
    """Whether the last lap with known results brought something new."""
    if not rules.tool_calls.require_no_progress:
        return False
    seen = Seen()
    found = [
        seen.brings_progress(call, result)
        for call, result in answered(history, history.task_start(), rules.exempt_tools)
    ]
    return any(found[-length:])


def _pattern(lap: Sequence[str]) -> str:
    first = min([*lap[i:], *lap[:i]] for i in range(len(lap)))
    return f"{digest(*first):016x}"


def _hint(lap: Sequence[str], laps: int) -> str:
    circle = ", ".join(name[:64] for name in lap)
    return (
        f"You have gone round the same circle of tools ({circle}) {times(laps)} without learning "
        "anything new. Do not go round again: take another approach, or answer with what you know."
    )
