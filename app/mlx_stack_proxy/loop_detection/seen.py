"""What was seen of a session that its client may since have taken out of the transcript.

Results that were cleared are found by the place of the turn that brought them. A transcript that
begins in the midst of a task (it was compacted, or only its end is sent) goes on from where its
first reply was given: that is found by the id of a call in it, or by a text of the model's that
the user's message quotes, as compaction does with a summary. All is bounded: the oldest go first.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import replace
from typing import Final, TypeVar

from .call_keys import Call
from .turn import Inputs, Turn

MAX_SEEN: Final = 1024  # turns of a session of which it is known what they were shown
MAX_REPLIES: Final = 128  # calls of a session of which it is known what came before,
MAX_BEFORE: Final = 48  # so many turns each: three laps of the longest circle
MAX_TEXTS: Final = 4  # replies without calls of which that is known
MAX_RUNS: Final = 256  # turns of one session's runs, of which something is remembered

_K = TypeVar("_K", bound=Hashable)
_V = TypeVar("_V")


class Recent(OrderedDict[_K, _V]):
    """A bounded mapping: setting a key makes it the newest, and the oldest key is dropped."""

    def __init__(self, most: int = MAX_RUNS) -> None:
        super().__init__()
        self._most = most

    def __setitem__(self, key: _K, value: _V) -> None:
        super().__setitem__(key, value)
        self.move_to_end(key)
        if len(self) > self._most:
            self.popitem(last=False)

    def find_and_refresh(self, run: Sequence[_K]) -> _V | None:
        """The value of the run's newest turn that has one; it is also set for the last turn.

        So the value outlives the oldest turns of a long run, which are forgotten.
        """
        for place in reversed(run):
            if place in self:
                self[run[-1]] = self[place]
                return self[place]
        return None


class Seen:
    """Of one session."""

    __slots__ = ("_inputs", "_replies", "_texts", "_turns")

    def __init__(self) -> None:
        # By a turn's place: the turn, and what it was shown.
        self._turns: Recent[int, Turn] = Recent(MAX_SEEN)
        self._inputs: Recent[int, Inputs] = Recent(MAX_SEEN)
        # The place that a reply was given at, by its calls or by the lines of its text.
        self._replies: Recent[int, int | None] = Recent(MAX_REPLIES)
        self._texts: deque[tuple[frozenset[int], int]] = deque(maxlen=MAX_TEXTS)

    def new(self, place: int, inputs: Inputs) -> None:
        self._inputs[place] = inputs

    def at(self, place: int, inputs: Inputs) -> Inputs:
        """What came after the turn at this place, where ``inputs`` is in its stead by now."""
        return self._inputs.get(place, inputs)

    def replied(
        self, turns: Sequence[Turn], asked: Inputs, text: str, calls: Iterable[tuple[Call, str]]
    ) -> None:
        """A reply was given behind these turns: its text, its calls with their ids."""
        for turn in turns[-MAX_BEFORE:]:
            if turn.place not in self._turns:
                self._turns[turn.place] = turn
        place = turns[-1].place if turns else 0
        keys = [hash((id, call.key)) for call, id in calls if id]
        for key in keys:
            known = self._replies.get(key, place)
            self._replies[key] = place if known == place else None  # an id given twice is none
        if not keys and turns and asked.user and any(asked.results) and (lines := _lines(text)):
            # A summary, perhaps: the work goes on where these results came, without this question.
            self.new(place, replace(asked, user=False, interjected=False))
            self._texts.append((lines, place))

    def before_calls(self, calls: Iterable[tuple[Call, str]]) -> list[Turn]:
        """The turns before the reply that made one of these calls."""
        for call, id in calls:
            key = hash((id, call.key))
            if (place := self._replies.get(key)) is not None:
                self._replies[key] = place  # the last that is forgotten
                return self._turns_to(place)
        return []

    def before_text(self, text: str) -> list[Turn]:
        """The turns before the reply that this text holds, most of its lines at least."""
        if self._texts:
            lines = _lines(text)
            for quoted, place in reversed(self._texts):
                if 2 * len(quoted & lines) > len(quoted):
                    return self._turns_to(place)
        return []

    def _turns_to(self, place: int) -> list[Turn]:
        turns: list[Turn] = []
        while place in self._turns and len(turns) < MAX_BEFORE:
            turn = self._turns[place] = self._turns[place]
            turns.append(turn)
            place = turn.before
        return turns[::-1]


def _lines(text: str) -> frozenset[int]:
    return frozenset([hash(line.strip()) for line in text.splitlines() if line.strip()])
