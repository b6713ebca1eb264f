"""Remembers the turns of a session that its client may later take out of the transcript.

If the client clears a result, :meth:`SeenTurns.at` finds it by its turn's place. If the transcript
begins within a task (the client compacted it, or sends only its end), the turns before it
are found by its first reply: by the id of a call in that reply, or by a text of the model's that
the user's message quotes, as compaction does with a summary. Each memory is bounded, and drops its
oldest entries.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Final

from ..recent import Recent, RecentByBytes
from .call_keys import CallKey
from .turn import Inputs, Turn

MAX_SEEN: Final = 1024  # turns of a session whose inputs are kept
MAX_BYTES: Final = 4 * 1024 * 1024  # that these turns may take, and their inputs
MAX_REPLIES: Final = 128  # calls of a session by which the turns before them are found
MAX_BEFORE: Final = 48  # turns that are found before a reply: three laps of the longest circle
MAX_TEXT: Final = 200_000  # characters of a text that are compared; a summary is shorter
MAX_TEXTS: Final = 4  # replies without calls by which the turns before them are found


class SeenTurns:
    """The turns of one session, by their places (``Turn.place``)."""

    __slots__ = ("_inputs", "_replies", "_texts", "_turns")

    def __init__(self) -> None:
        self._turns: RecentByBytes[int, Turn] = RecentByBytes(
            MAX_SEEN, MAX_BYTES, lambda turn: turn.bytes
        )
        # The inputs that followed that turn.
        self._inputs: RecentByBytes[int, Inputs] = RecentByBytes(
            MAX_SEEN, MAX_BYTES, lambda one: one.bytes
        )
        # The place of the turn before a reply: by a call of the reply, by the lines of its text.
        self._replies: Recent[int, int | None] = Recent(MAX_REPLIES)
        self._texts: list[tuple[frozenset[int], int]] = []

    @property
    def bytes(self) -> int:
        """About how many bytes of memory this takes."""
        return self._turns.bytes + self._inputs.bytes

    def new(self, place: int, inputs: Inputs) -> None:
        self._inputs[place] = inputs

    def at(self, place: int, inputs: Inputs) -> Inputs:
        """Return the inputs that first came after this turn; ``inputs`` if none are known."""
        return self._inputs.get(place, inputs)

    def replied(
        self, turns: Sequence[Turn], inputs: Inputs, text: str, calls: Iterable[tuple[CallKey, str]]
    ) -> None:
        """Remember that a reply with this text, and these calls and ids, followed these turns."""
        for turn in turns[-MAX_BEFORE:]:
            if turn.place not in self._turns:
                self._turns[turn.place] = turn
        place = turns[-1].place if turns else 0
        keys = [hash((id, call.key)) for call, id in calls if id]
        for key in keys:
            known_place = self._replies.get(key, place)
            # An id in two places finds nothing.
            self._replies[key] = place if known_place == place else None
        if not keys and turns and inputs.user and any(inputs.results) and (lines := _lines(text)):
            # The user may have asked for a summary. The work then goes on from these results, as
            # if the user had not asked.
            self.new(place, replace(inputs, user=False, interjected=False))
            self._texts = [*self._texts, (lines, place)][-MAX_TEXTS:]

    def before_calls(self, calls: Iterable[tuple[CallKey, str]]) -> list[Turn]:
        """Return the turns before the reply that made one of these calls."""
        for call, id in calls:
            key = hash((id, call.key))
            if (place := self._replies.get(key)) is not None:
                self._replies[key] = place  # refresh it
                return self._turns_to(place)
        return []

    def before_text(self, text: str) -> list[Turn]:
        """Return the turns before the reply that this text quotes, by more than half its lines."""
        lines = _lines(text) if self._texts else frozenset()
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
    lines = text[:MAX_TEXT].splitlines()
    return frozenset([hash(line.strip()) for line in lines if line.strip()])
