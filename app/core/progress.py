"""What counts as progress: a result that is new, or work that was done.

A result is new where the same tool has not given it before in this task. An error is never new. An
empty or a missing result proves nothing against an agent: a command that moves a file prints
nothing. A text written somewhere for the first time is work, whatever the tool answers.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

from .call_keys import Call

if TYPE_CHECKING:
    from .turns import Inputs, Result, Turn

Brought = list[tuple[Call, bool]]  # calls, oldest first, and which of them were progress


class News:
    """Tells progress from repetition. It has to be shown all calls of a task, oldest first.

    ``known``: what another one was shown before; it stays as it is.
    """

    __slots__ = ("_known", "_results", "_written")

    def __init__(self, known: News | None = None) -> None:
        self._results: set[tuple[str, int]] = set()
        self._written: set[int] = set()
        self._known = known

    def of(self, calls: Sequence[Call], answers: Inputs) -> Brought:
        """A turn's calls, the next in order, and what came of them."""
        results = answers.results  # none at all in a stored window
        return [
            (call, self.is_in(call, results[at] if results else None))
            for at, call in enumerate(calls)
        ]

    def is_in(self, call: Call, result: Result | None) -> bool:
        """Whether this call, the next in order, brought progress."""
        new_work = False
        if call.writes:
            new_work = not self._has_written(call.exact)
            self._written.add(call.exact)
        if result is None or result.empty:
            return True
        key = (call.name, result.digest)
        known = key in self._results or (self._known is not None and key in self._known._results)
        self._results.add(key)
        return not result.error and (new_work or not known)

    def _has_written(self, call: int) -> bool:
        before = self._known
        return call in self._written or (before is not None and call in before._written)


class Tally:
    """What the calls of the task at hand brought, kept up as its turns come.

    ``turns``: how many the task has so far. ``names``: the tools called, oldest first. ``counts``:
    how often each. ``calls``: those of all its turns but the last, which may still be unanswered.
    """

    __slots__ = ("_last", "_news", "calls", "counts", "names", "turns")

    def __init__(self, turns: Sequence[Turn] = ()) -> None:
        self._begin()
        for turn in turns:
            self.take(turn)

    def _begin(self) -> None:
        self.turns = 0
        self.names: list[str] = []
        self.counts: Counter[str] = Counter()
        self.calls: Brought = []
        self._last: tuple[Call, ...] = ()
        self._news = News()

    def take(self, turn: Turn) -> None:
        """Take the next turn."""
        if turn.inputs.starts_task:
            self._begin()
        self.calls += self._news.of(self._last, turn.inputs)
        names = [call.name for call in turn.calls]
        self.names += names
        self.counts.update(names)
        self._last = turn.calls
        self.turns += 1

    def drop(self, turn: Turn) -> None:
        """Leave the task's oldest turn out; what it brought stays known."""
        self.counts.subtract(call.name for call in turn.calls)
        del self.names[: len(turn.calls)]
        del self.calls[: len(turn.calls)]
        self.turns -= 1

    def answered(self, pending: Inputs) -> Brought:
        """All calls that can have been answered, those of the last turn by ``pending``."""
        if not pending.known:
            return list(self.calls)
        return [*self.calls, *News(self._news).of(self._last, pending)]
