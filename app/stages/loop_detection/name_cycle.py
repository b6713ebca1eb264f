"""Two to four tool names in a circle (search, fetch, search, fetch), other arguments each time.

Several names in one reply count one after the other. One name over and over is no circle:
``tool_frequency`` looks at that. Laps that brought something new don't count: a circle begins with
the last of them. Nor does a lap that goes on with a list, however alike the answers are: each of
its calls is made for the first time and brings a verdict.
"""

from __future__ import annotations

from collections.abc import Sequence

from ...core.call_keys import digest
from ...core.history import History
from ...core.progress import Progress
from ...settings import LoopDetectionSettings
from . import overrides
from .finding import Finding, State, times


class NameCycle:
    name = "name_cycle"

    def find(self, history: History, rules: LoopDetectionSettings) -> Finding | None:
        turns = history.turns
        if not turns or not any(call.name not in rules.exempt_tools for call in turns[-1].calls):
            return None
        calls, quiet = rules.tool_calls, _quiet(history, rules)
        if quiet < calls.name_cycle_min_length * (overrides.fewest_laps(rules) - 1):
            return None  # as mostly
        names = _names(history, rules)
        for length in range(calls.name_cycle_min_length, calls.name_cycle_max_length + 1):
            lap = names[-length:]
            warn, hard = overrides.name_cycle(lap, rules)
            fewest = length * min(warn, hard)
            if length + quiet < fewest or len(set(lap)) < 2:
                continue
            counted = _periodic(names, length, length + _quiet(history, rules, length))
            laps = counted // length
            if laps < min(warn, hard):
                continue
            level = State.CIRCUIT_BREAK if laps >= hard else State.WARNING
            place = _place(history, counted, rules)
            return Finding(self.name, level, laps, lap[0], _pattern(lap), _hint(lap, laps), place)
        return None

    def could_break(self, history: History, rules: LoopDetectionSettings) -> bool:
        if not history.turns:
            return False
        calls, quiet = rules.tool_calls, _quiet(history, rules)
        if quiet < calls.name_cycle_min_length * (overrides.fewest_laps(rules) - 2):
            return False
        names = _names(history, rules)
        for length in range(calls.name_cycle_min_length, calls.name_cycle_max_length + 1):
            lap = names[-length:]
            _, hard = overrides.name_cycle(lap, rules)
            # A reply may bring several names at once, up to a whole lap of them.
            needed = (hard - 1) * length
            if (
                quiet >= needed - length
                and len(set(lap)) >= 2
                and _quiet(history, rules, length) >= needed - length
                and _periodic(names, length, needed) >= needed
            ):
                return True
        return False


def _names(history: History, rules: LoopDetectionSettings) -> Sequence[str]:
    if not any(history.counts.get(tool) for tool in rules.exempt_tools):
        return history.names
    return [name for name in history.names if name not in rules.exempt_tools]


def _place(history: History, back: int, rules: LoopDetectionSettings) -> int:
    """The place of the turn in which the ``back``-th last name was called."""
    for turn in reversed(history.turns):
        back -= sum(call.name not in rules.exempt_tools for call in turn.calls)
        if back <= 0:
            return turn.place
    return 0


def _periodic(names: Sequence[str], length: int, most: int) -> int:
    """How long the suffix with this period is, up to ``most``."""
    most = min(most, len(names))
    count = min(length, most)
    while count < most and names[-count - 1] == names[-count - 1 + length]:
        count += 1
    return count


def _quiet(history: History, rules: LoopDetectionSettings, lap: int = 0) -> int:
    """How many of the newest calls brought nothing new; those not answered yet count with them.

    ``lap``: so many verdicts in a row are of a list that the agent goes through.
    """
    if not rules.tool_calls.require_no_progress:
        return len(_names(history, rules))
    exempt = rules.exempt_tools
    quiet = alike = 0
    for call in () if history.pending.known else history.turns[-1].calls:
        quiet += call.name not in exempt
    for call, came_to in history.calls_backwards():
        if came_to.gets_on:
            break
        if call.name in exempt:
            continue
        quiet += 1
        alike = alike + 1 if came_to is Progress.ALIKE else 0
        if alike and alike == lap:
            return quiet - alike
    return quiet


def _pattern(lap: Sequence[str]) -> str:
    first = min([*lap[i:], *lap[:i]] for i in range(len(lap)))
    return f"{digest(*first):016x}"


def _hint(lap: Sequence[str], laps: int) -> str:
    circle = ", ".join(name[:64] for name in lap)
    return (
        f"You have gone round the same circle of tools ({circle}) {times(laps)} without learning "
        "anything new. Do not go round again: take another approach, or answer with what you know."
    )
