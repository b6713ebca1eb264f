"""What is remembered of a session's transcripts, which its client may since have cut.

All is bounded: what was set the longest ago goes first.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import replace
from typing import Final, NamedTuple, TypeVar

from .call_keys import Call
from .turn import Inputs, Turn

MAX_TURNS: Final = 512  # kept of a transcript; the detectors look back no further
MAX_SEEN: Final = 2 * MAX_TURNS  # turns of a session of which it is known what they were shown
MAX_REPLIES: Final = 128  # calls of a session of which it is known what came before,
MAX_BEFORE: Final = 48  # so many turns each: three laps of the longest circle
MAX_TEXTS: Final = 4  # replies without calls of which that is known
BEFORE_BYTES: Final = 600  # about what is kept of a call
MAX_RUNS: Final = 256  # turns of one session's runs, of which something is remembered

_K = TypeVar("_K", bound=Hashable)
_V = TypeVar("_V")


class Recent(OrderedDict[_K, _V]):
    """The values that were set last; the oldest go first."""

    def __init__(self, most: int = MAX_RUNS) -> None:
        super().__init__()
        self._most = most

    def __setitem__(self, key: _K, value: _V) -> None:
        super().__setitem__(key, value)
        self.move_to_end(key)
        if len(self) > self._most:
            self.popitem(last=False)

    def of(self, run: Sequence[_K]) -> _V | None:
        """What was set for a turn of this run. It is of the newest one from now on.

        The oldest turns of a long run are forgotten.
        """
        for place in reversed(run):
            if place in self:
                self[run[-1]] = self[place]
                return self[place]
        return None


class Before(NamedTuple):
    """Where a reply was given: the turns before it, the last few, and what it answered."""

    turns: tuple[Turn, ...]
    inputs: Inputs
    task_start: int


class Seen:
    """What was seen of a session that its client may since have taken out of the transcript.

    Results that were cleared are found by the place of the turn that brought them. A transcript
    that begins in the midst of a task (it was compacted, or only its end is sent) goes on from
    where its first reply was given: that is found by the id of a call in it, or by a text of the
    model's that the user's message quotes, as compaction does with a summary. All is bounded: the
    oldest go first.
    """

    __slots__ = ("_before", "_inputs", "_texts")

    def __init__(self) -> None:
        self._inputs: Recent[int, Inputs] = Recent(MAX_SEEN)
        self._before: Recent[int, Before | None] = Recent(MAX_REPLIES)
        self._texts: deque[tuple[frozenset[int], Before]] = deque(maxlen=MAX_TEXTS)

    @property
    def size(self) -> int:
        """Bytes, about, beside the turns."""
        return BEFORE_BYTES * len(self._before)

    def new(self, place: int, inputs: Inputs) -> None:
        self._inputs[place] = inputs

    def at(self, place: int, inputs: Inputs) -> Inputs:
        """What came after the turn at this place, where ``inputs`` is in its stead by now."""
        return self._inputs.get(place, inputs)

    def replied(self, before: Before, text: str, calls: Iterable[tuple[Call, str]]) -> None:
        """A reply was given: its text, its calls with their ids."""
        keys = [hash((id, call.key)) for call, id in calls if id]
        for key in keys:
            known = self._before.get(key, before)
            self._before[key] = before if known == before else None  # an id given twice is none
        asked = before.inputs
        if not keys and asked.user and any(asked.results) and (lines := _lines(text)):
            # A summary, perhaps: the work goes on where these results came, without this question.
            asked = replace(asked, user=False, interjected=False)
            self._texts.append((lines, before._replace(inputs=asked)))

    def before_calls(self, calls: Iterable[tuple[Call, str]]) -> Before | None:
        found = [self._before.get(hash((id, call.key))) for call, id in calls]
        return next(filter(None, found), None)

    def quoted_in(self, text: str) -> Before | None:
        """Where the reply was given that this text holds, most of its lines at least."""
        if not self._texts:
            return None
        lines = _lines(text)
        for quoted, before in reversed(self._texts):
            if 2 * len(quoted & lines) > len(quoted):
                return before
        return None


def _lines(text: str) -> frozenset[int]:
    return frozenset([hash(line.strip()) for line in text.splitlines() if line.strip()])
