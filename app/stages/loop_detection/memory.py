"""What is remembered of a session between its exchanges: which hints were given, what was broken.

All of it is keyed by what transcripts say, so parallel sub-agents of a session don't disturb each
other; losing it (a restart, too many sessions) costs a hint given twice.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, field
from typing import Final

from ...core.history import History
from .finding import Finding
from .judge import Schedule

MAX_HINTS: Final = 64  # remembered of a session
MAX_BROKEN: Final = 8
MAX_TASKS: Final = 16  # of one session, at which a judge looks now and then


@dataclass(frozen=True, slots=True)
class Broken:
    """A loop that was broken. ``results``: what each of its actions had brought, by action."""

    finding: Finding
    results: dict[int, tuple[int, ...]]


@dataclass(slots=True)
class Remembered:
    """One session. ``has_transcript``: its client resends what was said.

    ``told``: (pattern, where its run began) → the transcript as it stood when the hint was given.
    ``schedules``: when the judge is asked again about a task. ``judged``: the loop that it found in
    one, until it is broken.
    """

    has_transcript: bool = False
    told: OrderedDict[tuple[str, str, int], int] = field(default_factory=OrderedDict)
    broken: OrderedDict[str, Broken] = field(default_factory=OrderedDict)
    schedules: OrderedDict[int, Schedule] = field(default_factory=OrderedDict)
    judged: OrderedDict[int, Finding] = field(default_factory=OrderedDict)

    def tell(self, found: Finding, place: int) -> tuple[bool, bool]:
        """Whether a hint is given for the first time, and whether it is to be given at all.

        ``place``: the transcript that the request ends with. Each run of a pattern is told once;
        the same request again (a retry, a client's second try) is told again.
        """
        key = (found.detector, found.pattern, found.place)
        first = key not in self.told
        if first:
            self.told[key] = place
            while len(self.told) > MAX_HINTS:
                self.told.popitem(last=False)
        return first, self.told[key] == place

    def note_break(self, found: Finding, history: History) -> None:
        """``history``: with the broken reply as its newest turn."""
        results = {
            turn.action: _results(history, position)
            for position, turn in enumerate(history.turns[:-1])
            if turn.action in found.actions
        }
        self.broken[found.pattern] = Broken(found, results)
        self.broken.move_to_end(found.pattern)
        while len(self.broken) > MAX_BROKEN:
            self.broken.popitem(last=False)

    def look_again(self, schedule: Schedule) -> None:
        self.schedules[schedule.task] = schedule
        self.schedules.move_to_end(schedule.task)
        while len(self.schedules) > MAX_TASKS:
            self.schedules.popitem(last=False)

    def note_judged(self, task: int, found: Finding) -> None:
        self.judged[task] = found
        while len(self.judged) > MAX_TASKS:
            self.judged.popitem(last=False)

    def broken_before(self, history: History) -> Finding | None:
        """The loop that was broken and that the newest turn would simply go on with.

        It is over as soon as anything else was done, or its calls bring anything else.
        """
        if not self.broken or not history.turns:
            return None
        action = history.turns[-1].action
        for broken in self.broken.values():
            end = len(history.turns) - 1
            if action in broken.finding.actions and _goes_on(broken, history, end):
                return broken.finding
        return None

    def could_break(self, history: History) -> bool:
        """Whether the next reply may go on with a loop that was broken."""
        return any(_goes_on(one, history, len(history.turns)) for one in self.broken.values())


class Sessions:
    """What is remembered, by session hash; the least recently used go first."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._sessions: OrderedDict[str, Remembered] = OrderedDict()

    def get(self, session: str) -> Remembered:
        found = self._sessions.get(session)
        if found is None:
            found = self._sessions[session] = Remembered()
            while len(self._sessions) > self._most:
                self._sessions.popitem(last=False)
        self._sessions.move_to_end(session)
        return found

    def forget(self, session: str) -> None:
        self._sessions.pop(session, None)


def _goes_on(broken: Broken, history: History, end: int) -> bool:
    """Whether the last that was done before turn ``end`` belongs to the broken loop."""
    for position in range(end - 1, -1, -1):
        turn = history.turns[position]
        if turn.action in broken.finding.actions:
            return _results(history, position) == broken.results.get(turn.action)
        if turn.calls:
            return False
    return False


def _results(history: History, position: int) -> tuple[int, ...]:
    return tuple(result.digest for result in history.results(position) if result is not None)
