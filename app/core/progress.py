"""What counts as progress: a result that is new, or work that was done.

A result is new where the same tool has not given it before in this task. An error is never new. An
empty or a missing result proves nothing against an agent.

Work is what changes things: a text written somewhere for the first time, or a call that was not
made before, of a tool whose name says that it does more than look, and whose answer is neither an
error nor says that nothing came of it. A batch is answered "File moved successfully." a hundred
times, and is no loop.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from enum import IntEnum
from typing import Final, NamedTuple

from ..tool_calls.names import MAX_NAME, words
from .call_keys import Call
from .turn import Inputs, Result, Turn


class Progress(IntEnum):
    """What a call came to."""

    NONE = 0  # it failed, found nothing, or brought what is known
    ALIKE = 1  # a verdict on something else, though the same one: host after host is "alive"
    UNKNOWN = 2  # no result, or one that says nothing
    NEWS = 3
    WORK = 4

    @property
    def gets_on(self) -> bool:
        return self > Progress.ALIKE


Brought = tuple[tuple[Call, Progress], ...]  # calls, oldest first, and what they came to

# The first of these words in a tool's name says whether it changes things or only looks, thinks or
# asks: mark_as_read, read_file. A name without any may do everything.
_CHANGES: Final = """
    add apply append cancel click close create delete drag drop edit execute fill hover insert
    make mark merge move navigate post press put remove rename replace run save scroll send set
    store submit swipe tap type update upload write
"""
_LOOKS: Final = """
    analyse analyze browse cat check compare count describe diff exists explore fetch find get
    glob google grep head help http info inspect list look lookup ls monitor peek ping plan
    poll query read recall reflect request research retrieve scan search see show stat state
    status tail test tests think thinking thought url verify view watch weather web wikipedia
"""
_SAYS: Final = dict.fromkeys(_CHANGES.split(), True) | dict.fromkeys(_LOOKS.split(), False)


def changes_things(tool: str) -> bool | None:
    """Whether a tool does more than look, by its name; None: it may do either."""
    return _says(tool.rpartition("__")[2][:MAX_NAME])  # without the name of an MCP server


@functools.lru_cache(maxsize=4096)
def _says(name: str) -> bool | None:
    return next((_SAYS[word] for word in words(name) if word in _SAYS), None)


class News:
    """Tells progress from repetition. It has to be shown all calls of a task, oldest first.

    ``known``: what another one was shown before; it stays as it is.
    """

    __slots__ = ("_known", "_made", "_results")

    def __init__(self, known: News | None = None) -> None:
        self._results: set[tuple[str, int]] = set()
        self._made: set[int] = set()  # calls, noise left out
        self._known = known

    def of(self, calls: Sequence[Call], answers: Inputs) -> Brought:
        """A turn's calls, the next in order, and what came of them."""
        results = answers.results  # none at all in a stored window
        return tuple(
            [
                (call, self.of_call(call, results[at] if results else None))
                for at, call in enumerate(calls)
            ]
        )

    def of_call(self, call: Call, result: Result | None) -> Progress:
        """What this call, the next in order, came to."""
        is_first = not self._was_made(call.loose)
        self._made.add(call.loose)
        if result is None:
            return Progress.UNKNOWN
        works = is_first and (call.writes or changes_things(call.name) is not False)
        if works and not result.error and (call.writes or not result.nothing):
            self._results.add((call.name, result.digest))
            return Progress.WORK
        if result.empty:
            return Progress.UNKNOWN
        key = (call.name, result.digest)
        known = key in self._results or (self._known is not None and key in self._known._results)
        self._results.add(key)
        if result.error:
            return Progress.NONE
        if not known:
            return Progress.NEWS
        is_verdict = is_first and result.brief and not result.nothing
        return Progress.ALIKE if is_verdict else Progress.NONE

    def _was_made(self, call: int) -> bool:
        before = self._known
        return call in self._made or (before is not None and call in before._made)


class Counted(NamedTuple):
    """The calls of the task at hand, as it stood at one time.

    ``names``: the tools called, oldest first. ``counts``: how often each. ``most``: no call was
    made in more of its turns than that, noise left out. ``brought``: the calls that can have been
    answered, oldest first, in two parts: all but the last turn's, and those.
    """

    names: tuple[str, ...] = ()
    counts: Mapping[str, int] = {}
    most: int = 0
    brought: tuple[Brought, Brought] = ((), ())

    def and_made(self, calls: Sequence[Call]) -> Counted:
        """With a turn more that makes these."""
        names = tuple([call.name for call in calls])
        counts = dict(self.counts)
        for name in names:
            counts[name] = counts.get(name, 0) + 1
        return Counted((*self.names, *names), counts, self.most + 1, self.brought)


_NO_CALLS: Final = Counted()


class Tally:
    """What the calls of the task at hand brought, kept up as its turns come.

    ``turns``: how many the task has so far.
    """

    __slots__ = ("_brought", "_counts", "_last", "_made", "_most", "_names", "_news", "turns")

    def __init__(self, turns: Sequence[Turn] = ()) -> None:
        self._begin()
        for turn in turns:
            self.take(turn)

    def _begin(self) -> None:
        self.turns = 0
        self._names: tuple[str, ...] = ()
        self._counts: dict[str, int] = {}
        self._made: dict[int, int] = {}  # how often each call was made, noise left out
        self._most = 0
        self._brought: Brought = ()  # of all turns but the last, which may still be unanswered
        self._last: tuple[Call, ...] = ()
        self._news = News()

    def take(self, turn: Turn) -> None:
        """Take the next turn."""
        if turn.inputs.starts_task:
            self._begin()
        if self._last:
            self._brought += self._news.of(self._last, turn.inputs)
        counts, made = self._counts, self._made
        for call in turn.calls:
            counts[call.name] = counts.get(call.name, 0) + 1
            made[call.loose] = often = made.get(call.loose, 0) + 1
            self._most = max(self._most, often)
        self._names += tuple([call.name for call in turn.calls])
        self._last = turn.calls
        self.turns += 1

    def drop(self, turn: Turn) -> None:
        """Leave the task's oldest turn out; what it brought stays known."""
        for call in turn.calls:
            self._counts[call.name] -= 1
        self._names = self._names[len(turn.calls) :]
        self._brought = self._brought[len(turn.calls) :]
        self.turns -= 1

    def counted(self, pending: Inputs) -> Counted:
        """As it stands, with ``pending`` as the answers to the last turn's calls."""
        if pending.starts_task:
            return _NO_CALLS
        newest = News(self._news).of(self._last, pending) if pending.known else ()
        return Counted(self._names, dict(self._counts), self._most, (self._brought, newest))
