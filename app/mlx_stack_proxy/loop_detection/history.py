"""A session's history: the turns of a request's messages, or of the session's last exchanges.

A :class:`_Reading` takes a transcript's messages in order. A session remembers its readings of the
beginnings of its transcripts (``wire/blocks.py``), so only new messages are read. A branch, a
parallel sub-agent, an edited or a compacted transcript has the history that its own messages tell.
A message keeps the meaning that it had when it was new.
"""

from __future__ import annotations

import copy
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from ..recent import Recent
from ..wire.blocks import Blocks, Known
from ..wire.chunks import text_of
from .call_keys import Call
from .seen import Seen
from .turn import NOTHING_YET, Inputs, Turn
from .turns import Given, Output, given_by, is_given, output, output_of, taken_together

MAX_SESSIONS: Final = 256  # sessions whose turns are remembered (`Seen`)
MAX_READINGS: Final = 16  # beginnings of transcripts that a session remembers


class History:
    """The turns of a session, and the input that the next reply answers. Immutable."""

    __slots__ = ("_repeats", "pending", "place", "task_start", "turns")

    def __init__(
        self,
        turns: tuple[Turn, ...] = (),
        pending: Inputs = NOTHING_YET,
        place: int = 0,
        task_start: int = 0,
    ) -> None:
        self.turns = turns  # oldest first
        self.pending = pending
        self.place = place  # names the transcript as it stands, the pending input included
        # The first turn of what the user asked for last; one past the end if none came yet.
        self.task_start = len(turns) if pending.starts_task else task_start
        self._repeats: bool | None = None  # None: not computed yet

    @property
    def repeats(self) -> bool:
        """Whether the newest turn's action occurred earlier in this task."""
        if self._repeats is None:
            actions = [turn.action for turn in self.turns[self.task_start :]]
            self._repeats = bool(actions) and actions.index(actions[-1]) < len(actions) - 1
        return self._repeats

    def closed_by(self, text: str, calls: Sequence[Call]) -> History:
        """Return the history with a reply as its newest turn."""
        reply = output(text, [(call, "") for call in calls])
        turn = reply.turn(self.pending, self.turns[-1] if self.turns else None)
        return History((*self.turns, turn), NOTHING_YET, self.place, self.task_start)

    def behind(self, turns: tuple[Turn, ...]) -> History:
        """Return this history behind the session's last turns, for a client without transcripts.

        A request with another input than the one before starts a new task.
        """
        same = turns[-1].inputs.digest == self.pending.digest
        starts = [at for at, turn in enumerate(turns) if turn.inputs.starts_task]
        pending = replace(self.pending, starts_task=not same)
        return History(turns, pending, self.place, starts[-1] if starts else 0)


class HistoryReader:
    """Reads histories. Remembers the turns of sessions."""

    def __init__(self) -> None:
        self._sessions: Recent[str, _Session] = Recent(MAX_SESSIONS)

    def read(self, session: str, blocks: Blocks, failed: Collection[str] = ()) -> History:
        """Return the history that a request's messages tell. ``session``: the session's hash.

        ``failed``: the ids of calls whose results are errors.
        """
        remembered = self._of(session)
        seen = remembered.seen
        whole = remembered.known.read(
            blocks, _NOTHING, lambda before, more: before.and_more(more, seen, failed)
        )
        return whole.history(seen)

    def replied(
        self, session: str, history: History, text: str, calls: Sequence[tuple[Call, str]]
    ) -> None:
        """Remember the turns before a reply: its client may compact the transcript later."""
        self._of(session).seen.replied(history.turns, history.pending, text, calls)

    def forget(self, session: str) -> None:
        self._sessions.pop(session, None)

    def _of(self, session: str) -> _Session:
        found = self._sessions[session] = self._sessions.get(session) or _Session()
        return found


class _Reading:
    """A transcript, read up to some message.

    It is read in order, for an input's meaning depends on the turns before it.
    """

    def __init__(self) -> None:
        self._turns: list[Turn] = []
        self._task_start = 0
        self._acts = False  # whether calls were made in the task at hand
        # Whether the last input that held tool results held words of the user's, too.
        self._user_beside_results: bool | None = None
        self._output: Output | None = None  # the last assistant message; None: none came yet
        self._given: list[Given] = []  # the messages since
        self._asked: Any = ""  # the content of the last message before the assistant's first

    def and_more(
        self, messages: Sequence[Mapping[str, Any]], seen: Seen, failed: Collection[str]
    ) -> _Reading:
        """Return this reading with the next messages."""
        new = copy.copy(self)
        new._turns, new._given = self._turns[:], self._given[:]
        for message in messages:
            if message.get("role") == "assistant":
                new._take(output_of(message), seen)
            elif is_given(message):
                new._given.append(given_by(message, failed))
                if new._output is None:
                    new._asked = message.get("content")
        return new

    def history(self, seen: Seen) -> History:
        """Return the history that all messages tell."""
        whole = copy.copy(self)
        if self._output is None:
            whole._go_on_from(seen.before_text(text_of(self._asked)))
            inputs = whole._as_shown(seen)
        else:
            inputs = whole._inputs()
        turns = whole._turns
        place = turns[-1].place if turns else 0
        if self._given and turns and None not in inputs.results:
            seen.new(place, inputs)
        return History(tuple(turns), inputs, hash((place, inputs.digest)), whole._task_start)

    def _take(self, made: Output, seen: Seen) -> None:
        """Take an assistant message, which ends a turn."""
        if self._output is None:
            before = seen.before_calls(zip(made.calls, made.ids, strict=False))
            self._go_on_from(before or seen.before_text(text_of(self._asked)))
            self._asked = ""
        inputs = self._as_shown(seen)
        if any(inputs.results):
            self._user_beside_results = inputs.user
        if inputs.starts_task:
            self._task_start = len(self._turns)
        self._acts = bool(made.calls) or (self._acts and not inputs.starts_task)
        self._turns.append(made.turn(inputs, self._turns[-1] if self._turns else None))
        self._output, self._given = made, []

    def _go_on_from(self, turns: list[Turn]) -> None:
        """Put remembered turns before a transcript that begins in the midst of a task."""
        if turns:
            self._turns = turns
            starts = [at for at, turn in enumerate(turns) if turn.inputs.starts_task]
            self._task_start = starts[-1] if starts else 0
            self._acts = any(turn.calls for turn in turns[self._task_start :])
            self._user_beside_results = False

    def _as_shown(self, seen: Seen) -> Inputs:
        """Return the inputs as they first came, for a client may clear results later."""
        inputs = self._inputs()
        return seen.at(self._turns[-1].place, inputs) if self._turns else inputs

    def _inputs(self) -> Inputs:
        """Return the messages since the last assistant message."""
        digest, shape, results = taken_together(self._output, self._given)
        if all(one.call_id is not None for one in self._given):
            return Inputs(digest, shape, results)
        beside = any(results) and self._user_beside_results is False
        begins = self._begins(shape)
        return Inputs(digest, shape, results, user=True, starts_task=begins, interjected=beside)

    def _begins(self, shape: int) -> bool:
        """Whether a user message of this shape begins a task.

        The first message does, and one that follows an agent's last word (a reply without calls,
        after calls), and one that equals the message that began the task: a heartbeat.
        """
        if not self._turns:
            return True
        asked = self._turns[self._task_start].inputs
        again = asked.starts_task and asked.shape == shape
        return again or (self._acts and not self._turns[-1].calls)


_NOTHING: Final = _Reading()


class _Session:
    """What is remembered of one session."""

    def __init__(self) -> None:
        self.seen = Seen()
        self.known: Known[_Reading] = Known(MAX_READINGS)
