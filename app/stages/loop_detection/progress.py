"""What counts as progress: a result that is new, or work that was done.

A result is new where the same tool has not given it before in this task. An error is never new. An
empty or a missing result proves nothing against an agent: a command that moves a file prints
nothing. A text written somewhere for the first time is work, whatever the tool answers.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator

from ...core.call_keys import Call
from ...core.history import History
from ...core.turns import Result


def answered(
    history: History, start: int, exempt: Collection[str]
) -> Iterator[tuple[Call, Result | None]]:
    """The calls from turn ``start`` on with their results, oldest first.

    The newest turn's are left out while nothing can have answered them.
    """
    last = len(history.turns) if history.pending.known else len(history.turns) - 1
    for position in range(start, last):
        calls = history.turns[position].calls
        results = history.results(position)
        for at, call in enumerate(calls):
            if call.name not in exempt:
                yield call, results[at] if at < len(results) else None


class Seen:
    """Tells progress from repetition, call by call."""

    def __init__(self) -> None:
        self._results: set[tuple[str, int]] = set()
        self._written: set[int] = set()

    def brings_progress(self, call: Call, result: Result | None) -> bool:
        """Whether this call, the next in order, brought anything new."""
        new_work = call.writes and call.exact not in self._written
        self._written.add(call.exact)
        if result is None or result.empty:
            return True
        known = (call.name, result.digest) in self._results
        self._results.add((call.name, result.digest))
        if result.error:
            return False
        return new_work or not known
