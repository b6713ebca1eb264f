"""What counts as progress: a result that is new, or work that was done.

A result is new where the same tool has not given it before in this task. An error is never new. An
empty or a missing result proves nothing against an agent: a command that moves a file prints
nothing. A text written somewhere for the first time is work, whatever the tool answers.
"""

from __future__ import annotations

from .call_keys import Call
from .turns import Result


class News:
    """Tells progress from repetition. It has to be shown all calls of a task, oldest first."""

    __slots__ = ("_results", "_written")

    def __init__(self) -> None:
        self._results: set[tuple[str, int]] = set()
        self._written: set[int] = set()

    def is_in(self, call: Call, result: Result | None) -> bool:
        """Whether this call, the next in order, brought progress."""
        new_work = False
        if call.writes:
            new_work = call.exact not in self._written
            self._written.add(call.exact)
        if result is None or result.empty:
            return True
        key = (call.name, result.digest)
        known = key in self._results
        self._results.add(key)
        return not result.error and (new_work or not known)
