"""What is remembered of a session between its exchanges: which hints were given, what was broken.

All of it is keyed by what transcripts say, so parallel sub-agents of a session don't disturb each
other; losing it (a restart, too many sessions) costs a hint given twice.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Final

from ...core.exchange import Began
from ...core.history import History
from ...core.turn import Turn
from ...frozen import frozen
from .finding import Finding
from .judge import Schedule

MAX_HINTS: Final = 64  # remembered of a session
MAX_BROKEN: Final = 8
MAX_ASKED: Final = 8
MAX_TASKS: Final = 16  # of one session, at which a judge looks now and then


@frozen
class Broken:
    """A loop that was broken. ``results``: what each of its actions had brought, by action.

    ``place``: of the last turn before the broken reply. ``stopped``: the action of the reply that
    went out in its stead, if one did.
    """

    finding: Finding
    results: dict[int, tuple[int, ...]]
    place: int
    stopped: int | None = None


@dataclass(slots=True)
class Remembered:
    """One session. ``has_transcript``: its client resends what was said.

    ``began``: when the store first saw it; None: not known yet.
    ``told``: (detector, pattern, a turn of its run) → the transcript as it stood when the hint was
    given. ``broken``: by pattern and the place where it was broken.
    ``asked``: the pattern of calls that were made again, and a turn of their run, where another
    tier was asked about them.
    ``schedules``: when the judge is asked again about a task. ``judged``: the loop that it found in
    one, until it is broken.
    """

    has_transcript: bool = False
    began: float | None = None
    told: OrderedDict[tuple[str, str, int], int] = field(default_factory=OrderedDict)
    broken: OrderedDict[tuple[str, int], Broken] = field(default_factory=OrderedDict)
    asked: OrderedDict[tuple[str, int], None] = field(default_factory=OrderedDict)
    schedules: OrderedDict[int, Schedule] = field(default_factory=OrderedDict)
    judged: OrderedDict[int, Finding] = field(default_factory=OrderedDict)

    def tell(self, found: Finding, history: History) -> tuple[bool, bool]:
        """Whether a hint is given for the first time, and whether it is to be given at all.

        Each run of a pattern is told once; the same request again (a retry, a client's second try)
        is told again. A run is known by the turn at which it was last seen: where it began may
        have left the window meanwhile.
        """
        name = (found.detector, found.pattern)
        marks = {key[2] for key in self.told if key[:2] == name}
        given: int | None = None
        for turn in reversed(history.turns) if marks else ():
            if turn.place in marks:
                given = self.told.pop((*name, turn.place))
                break
            if turn.place == found.place:
                break
        first = given is None
        place = history.place if given is None else given
        self.told[(*name, history.turns[-1].place)] = place
        while len(self.told) > MAX_HINTS:
            self.told.popitem(last=False)
        return first, place == history.place

    def note_break(self, found: Finding, history: History, stopped: int | None = None) -> None:
        """``history``: with the broken reply as its newest turn; ``stopped`` as in Broken."""
        results = {
            turn.action: _results(history, position)
            for position, turn in enumerate(history.turns[:-1])
            if turn.action in found.actions
        }
        place = history.turns[-2].place if len(history.turns) > 1 else 0
        key = (found.pattern, place)
        self.broken[key] = Broken(found, results, place, stopped)
        self.broken.move_to_end(key)
        while len(self.broken) > MAX_BROKEN:
            self.broken.popitem(last=False)

    def ask(self, pattern: str, place: int) -> None:
        """Another tier is asked about a call that is made again after the turn at this place."""
        self.asked[pattern, place] = None
        while len(self.asked) > MAX_ASKED:
            self.asked.popitem(last=False)

    def is_asked(self, pattern: str, run: Iterable[Turn]) -> bool:
        """Whether another tier was asked about this run of the same calls."""
        return any((pattern, turn.place) in self.asked for turn in run)

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
        return next((broken.finding for broken, _ in self._gone_on_with(history)), None)

    def is_believed(self, history: History) -> bool:
        """Whether the newest turn goes on with a loop whose broken reply was delivered after all.

        That is what two tiers that agree come to.
        """
        return any(since for _, since in self._gone_on_with(history))

    def _gone_on_with(self, history: History) -> Iterator[tuple[Broken, int]]:
        """The broken loops that the newest turn is part of, and their turns since the break."""
        if not self.broken or not history.turns:
            return
        action = history.turns[-1].action
        for broken in self.broken.values():
            if action in broken.finding.actions:
                since = _turns_since(broken, history, len(history.turns) - 1)
                if since is not None:
                    yield broken, since

    def could_break(self, history: History) -> bool:
        """Whether the next reply may go on with a loop that was broken."""
        if not self.broken:  # as nearly always
            return False
        end = len(history.turns)
        return any(_turns_since(one, history, end) is not None for one in self.broken.values())


class Sessions:
    """What is remembered, by session hash; the least recently used go first."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._sessions: OrderedDict[str, Remembered] = OrderedDict()

    def get(self, session: str, began: Began | None = None) -> Remembered:
        """What is remembered. ``began``: as the store has it; None: it could not be asked.

        A session that began anew for the store, which another process may have told to forget it,
        does so here.
        """
        found = self._sessions.get(session)
        if found and began and found.began is not None and began.time > found.began:
            found = None
        if found is None:
            found = self._sessions[session] = Remembered()
            while len(self._sessions) > self._most:
                self._sessions.popitem(last=False)
        if began is not None and began.stored:
            found.began = began.time
        self._sessions.move_to_end(session)
        return found

    def forget(self, session: str) -> None:
        self._sessions.pop(session, None)


def _turns_since(broken: Broken, history: History, end: int) -> int | None:
    """How often the loop was gone on with between its break and turn ``end``; None: it is over."""
    since = 0
    for position in range(end - 1, -1, -1):
        turn = history.turns[position]
        known = broken.results.get(turn.action)
        goes_on = known == _results(history, position)
        if turn.place == broken.place:
            return since if goes_on or known is None else None
        if turn.action != broken.stopped:
            if not goes_on:
                return None  # another action, or another result
            since += 1
    return None  # it was broken in another transcript


def _results(history: History, position: int) -> tuple[int, ...]:
    return tuple(result.digest for result in history.results(position) if result is not None)
