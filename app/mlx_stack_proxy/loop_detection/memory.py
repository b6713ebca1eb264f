"""Remembers between a session's exchanges which hints were given and which loops were broken.

The keys are places of turns (``Turn.place``), which depend only on what the assistant has said. So
neither a session's parallel sub-agents nor a client that clears old results disturb the memory. If
the memory is lost (a restart, too many sessions), a hint is given twice.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from ..engine.exchange import SessionStart
from ..recent import Recent
from .finding import Finding
from .history import History, RecentSessions
from .turn import Turn


@dataclass(slots=True)
class SessionMemory:
    """The memory of one session."""

    has_transcript: bool = False  # the client resends the transcript
    # By exchange: its turn, if it made calls. Kept only if the client sends no transcript.
    turns: dict[str, Turn] = field(default_factory=dict)
    began: float | None = None  # when the store first saw the session; None: not known yet
    # By detector and turn of the run: `History.place` when the hint was given.
    hinted: Recent[tuple[str, int], int] = field(default_factory=Recent)
    # Likewise: the run's length when it was broken.
    broken: Recent[tuple[str, int], int] = field(default_factory=Recent)
    # By detector and turn of the run: how many calls there were when a second tier was asked.
    asked: Recent[tuple[str, int], int] = field(default_factory=Recent)
    # By task: the turn at which the loop model is asked again.
    next_looks: Recent[int, int] = field(default_factory=Recent)
    # By task: the loop that the loop model found; until that loop is broken, or for good if it was
    # found twice.
    model_findings: Recent[int, Finding] = field(default_factory=Recent)
    verdicts: Recent[int, int] = field(default_factory=Recent)  # by task: how often it was found

    def is_proven(self, task: int) -> bool:
        """Whether the loop model found the task's loop twice, so that each reply breaks."""
        return self.verdicts.get(task, 0) > 1

    def keep(self, exchange: str, turn: Turn, limit: int) -> None:
        """Keep the turn of an exchange's last attempt; drop all but the last ``limit`` turns."""
        self.turns.pop(exchange, None)
        self.turns[exchange] = turn
        while len(self.turns) > limit:
            del self.turns[next(iter(self.turns))]

    def turns_before(self, exchange: str) -> tuple[Turn, ...]:
        """Return the turns of the session's other exchanges, oldest first."""
        return tuple([turn for id, turn in [*self.turns.items()] if id != exchange])

    def note_hint(self, finding: Finding, history: History) -> tuple[bool, bool]:
        """Note a hint. Return whether it is the run's first, and whether to give it at all.

        A run gets one hint. The same request again (a retry, a client's second try) gets the hint
        again.
        """
        run = [(finding.detector, place) for place in finding.run]
        history_place = self.hinted.find_and_refresh(run)
        if history_place is None:
            self.hinted[run[-1]] = history.place
        return history_place is None, history_place in (None, history.place)

    def note_break(self, finding: Finding) -> bool:
        """Note that a run is broken. Return whether it was broken before."""
        run = [(finding.detector, place) for place in finding.run]
        known = self.broken.find_and_refresh(run) is not None
        for key in run[-2:]:  # the broken reply, and the turn before it, which the client has
            self.broken[key] = finding.length
        return known

    def note_run(self, finding: Finding) -> bool:
        """Note that a run goes on. Return whether two tiers have confirmed it.

        If they have, the run is longer than when it was broken: the broken reply was delivered.
        """
        run = [(finding.detector, place) for place in finding.run]
        broken_length = self.broken.find_and_refresh(run)
        return broken_length is not None and finding.length > broken_length


class LoopMemory:
    """The memories of all sessions, by session hash; the least recently used are dropped."""

    def __init__(self, limit: int) -> None:
        self._sessions: RecentSessions[SessionMemory] = RecentSessions(limit)

    def get(self, session: str, began: SessionStart | None = None) -> SessionMemory:
        """Return a session's memory. ``began``: when the store has the session begin.

        If the session started over in the store, another process has forgotten it, so this process
        forgets it, too.
        """
        memory = self._sessions.get(session)
        if memory and began and memory.began is not None and began.first_seen > memory.began:
            memory = None
        memory = self._sessions[session] = memory or SessionMemory()
        if began is not None and began.turns:
            memory.began = began.first_seen
        return memory

    def forget(self, session: str | None) -> None:
        """Forget a session, or all of them."""
        self._sessions.forget(session)
