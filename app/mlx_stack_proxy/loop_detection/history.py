"""A session's history: the turns of a request's messages, or of the session's last exchanges.

A :class:`_Reading` takes a transcript's messages in order. A session remembers its readings of the
beginnings of its transcripts (``wire/blocks.py``), so only new messages are read. A branch, a
parallel sub-agent, an edited or a compacted transcript has the history that its own messages tell.
A message keeps the meaning that it had when it was new.
"""

from __future__ import annotations

import copy
import itertools
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from sys import getsizeof
from typing import Any, Final, TypeVar

from ..engine.session_id import DIGITS, busiest_key
from ..likeness import Digest
from ..recent import Recent
from ..wire.blocks import Blocks, Known
from ..wire.delta import text_of
from .call_keys import CallKey
from .read_messages import (
    InputMessage,
    Output,
    input_message_of,
    inputs_of,
    is_input,
    output,
    output_of,
)
from .seen import MAX_TEXT, SeenTurns
from .turn import NOTHING_YET, Inputs, Turn

MAX_SESSIONS: Final = 256  # sessions whose turns are remembered (`SeenTurns`)
MAX_BYTES: Final = 128 * 1024 * 1024  # of all that is remembered of transcripts
MAX_READINGS: Final = 16  # beginnings of transcripts that a session remembers


class History:
    """The turns of a session, and the pending input: the next reply answers it. Immutable."""

    __slots__ = ("_repeats", "pending", "place", "replies", "task_start", "turns")

    def __init__(
        self,
        turns: tuple[Turn, ...] = (),
        pending: Inputs = NOTHING_YET,
        place: int = 0,
        task_start: int = 0,
        replies: tuple[Digest, ...] = (),
    ) -> None:
        self.turns = turns  # oldest first
        self.replies = replies  # the session's text replies, for `similar_replies`; oldest first
        self.pending = pending
        self.place = place  # names the transcript as it stands, the pending input included
        # The first turn of the task at hand; one past the end if the task has no turn yet.
        self.task_start = len(turns) if pending.starts_task else task_start
        self._repeats: bool | None = None  # None: not computed yet

    @property
    def repeats(self) -> bool:
        """Whether the newest turn's action occurred earlier in this task."""
        if self._repeats is None:
            actions = [turn.action for turn in self.task]
            self._repeats = bool(actions) and actions.index(actions[-1]) < len(actions) - 1
        return self._repeats

    @property
    def task(self) -> tuple[Turn, ...]:
        """The turns of the task at hand."""
        return self.turns[self.task_start :]

    def closed_by(
        self, text: str, calls: Sequence[CallKey], digest: Digest | None = None
    ) -> History:
        """Return the history with a reply as its newest turn. ``digest``: the text's, if wanted."""
        reply = output(text, [(call, "", "") for call in calls])
        turn = reply.turn(self.pending, self.turns[-1] if self.turns else None)
        replies = (*self.replies, digest) if digest is not None else ()
        return History((*self.turns, turn), NOTHING_YET, self.place, self.task_start, replies)

    def after(self, turns: tuple[Turn, ...]) -> History:
        """Return this history after the session's last turns, for a client without transcripts.

        A request with another input than the one before starts a new task.
        """
        same_input = turns[-1].inputs.digest == self.pending.digest
        starts = [index for index, turn in enumerate(turns) if turn.inputs.starts_task]
        pending = replace(self.pending, starts_task=not same_input)
        return History(turns, pending, self.place, starts[-1] if starts else 0)


_SHARE: Final = 100  # one of so many sessions goes at once, because finding the key takes time
_V = TypeVar("_V")


class RecentSessions(Recent[str, _V]):
    """By session hash: the oldest go of the API key with the most; no key pushes out another."""

    def _drop(self) -> None:
        for session in busiest_key([*self])[: 1 + self._max_keys // _SHARE]:
            self.pop(session, None)

    def keep_within(self, most: int, weigh: Callable[[_V], int]) -> None:
        """Drop the heaviest session of the heaviest API key until all weigh at most ``most``."""
        weights = {session: weigh(value) for session, value in [*self.items()]}
        excess = sum(weights.values()) - most
        while excess > 0:
            keys: Counter[str] = Counter()
            for session, weight in weights.items():
                keys[session[DIGITS:]] += weight
            ((heaviest, _),) = keys.most_common(1)
            own = [session for session in weights if session[DIGITS:] == heaviest]
            victim = max(own, key=weights.__getitem__)
            excess -= weights.pop(victim)
            self.pop(victim, None)


class HistoryReader:
    """Reads histories. Remembers the turns of sessions."""

    def __init__(self, max_sessions: int = MAX_SESSIONS) -> None:
        self._sessions: RecentSessions[_Session] = RecentSessions(max_sessions)

    def read(self, session: str, blocks: Blocks, failed: Collection[str] = ()) -> History:
        """Return the history in a request's messages. ``session``: the session's hash.

        ``failed``: the ids of calls whose results are errors.
        """
        memory = self._memory_of(session)
        seen = memory.seen
        reading = memory.known.read(
            blocks, _NOTHING, lambda earlier, messages: earlier.and_more(messages, seen, failed)
        )
        memory.weigh()
        self._sessions.keep_within(MAX_BYTES, lambda each: each.bytes)
        return reading.history(seen)

    def replied(
        self, session: str, history: History, text: str, calls: Sequence[tuple[CallKey, str]]
    ) -> None:
        """Remember the turns before a reply: its client may compact the transcript later."""
        self._memory_of(session).seen.replied(history.turns, history.pending, text, calls)

    def forget(self, session: str | None) -> None:
        """Forget a session, or all of them."""
        self._sessions.forget(session)

    def _memory_of(self, session: str) -> _Session:
        memory = self._sessions[session] = self._sessions.get(session) or _Session()
        return memory


class _Reading:
    """A transcript, read up to some message.

    It is read in order, because an input's meaning depends on the turns before it.
    """

    def __init__(self) -> None:
        self._turns: list[Turn] = []
        self._task_start = 0
        self._has_acted = False  # whether calls were made in the task at hand
        # Whether the last input that held tool results held words of the user's, too.
        self._user_with_results: bool | None = None
        self._output: Output | None = None  # the last assistant message; None: none came yet
        self._input_messages: list[InputMessage] = []  # the messages since
        self._brought: set[tuple[str, int]] = set()  # what calls have brought in the task at hand
        self._opening = ""  # the text of the last message before the assistant's first
        # About how many bytes each part takes. Readings that go on from one share its parts.
        self.parts: dict[int, int] = {}

    def and_more(
        self, messages: Sequence[Mapping[str, Any]], seen: SeenTurns, failed: Collection[str]
    ) -> _Reading:
        """Return a copy of this reading that goes on with the next messages."""
        reading = copy.copy(self)
        reading._turns, reading._input_messages = self._turns[:], self._input_messages[:]
        reading._brought = self._brought.copy()
        for message in messages:
            if message.get("role") == "assistant":
                reading._take(output_of(message), seen)
            elif is_input(message):
                position = len(reading._input_messages)
                reading._input_messages.append(
                    input_message_of(message, failed, reading._output, position)
                )
                if reading._output is None:
                    reading._opening = text_of(message.get("content"))[:MAX_TEXT]
        reading.parts = {**self.parts, next(_PART_NAMES): reading._added_to(self)}
        return reading

    def _added_to(self, earlier: _Reading) -> int:
        """Return about how many bytes this reading takes beyond the one that it goes on from."""
        texts = [self._opening]
        if self._output is not None:
            texts += [*self._output.ids, *self._output.arguments]
        turns = sum([turn.bytes for turn in self._turns[len(earlier._turns) :]])
        inputs = len(self._input_messages) * _INPUT_BYTES
        copied = sum(map(getsizeof, (self._turns, self._input_messages, self._brought)))
        return turns + inputs + copied + sum(map(len, texts))

    def history(self, seen: SeenTurns) -> History:
        """Return the history in all messages."""
        reading = copy.copy(self)
        if self._output is None:
            reading._continue_from(seen.before_text(self._opening))
            inputs = reading._first_inputs(seen)
        else:
            inputs = reading._inputs()
        turns = reading._turns
        place = turns[-1].place if turns else 0
        if self._input_messages and turns and None not in inputs.results:
            seen.new(place, inputs)
        return History(tuple(turns), inputs, hash((place, inputs.digest)), reading._task_start)

    def _take(self, reply: Output, seen: SeenTurns) -> None:
        """Take an assistant message, which ends a turn."""
        if self._output is None:
            earlier_turns = seen.before_calls(zip(reply.calls, reply.ids, strict=False))
            self._continue_from(earlier_turns or seen.before_text(self._opening))
            self._opening = ""
        inputs = self._first_inputs(seen)
        if any(inputs.results):
            self._user_with_results = inputs.user
        if inputs.starts_task:
            self._task_start = len(self._turns)
            self._brought.clear()
        self._brought.update(inputs.brought)
        self._has_acted = bool(reply.calls) or (self._has_acted and not inputs.starts_task)
        self._turns.append(reply.turn(inputs, self._turns[-1] if self._turns else None))
        self._output, self._input_messages = reply, []

    def _continue_from(self, turns: list[Turn]) -> None:
        """Put remembered turns before a transcript that begins within a task."""
        if turns:
            self._turns = turns
            starts = [index for index, turn in enumerate(turns) if turn.inputs.starts_task]
            self._task_start = starts[-1] if starts else 0
            self._has_acted = any(turn.calls for turn in turns[self._task_start :])
            task = turns[self._task_start :]
            self._brought = {brought for turn in task for brought in turn.inputs.brought}
            self._user_with_results = False

    def _first_inputs(self, seen: SeenTurns) -> Inputs:
        """Return the inputs as they first came, because a client may clear results later on."""
        inputs = self._inputs()
        return seen.at(self._turns[-1].place, inputs) if self._turns else inputs

    def _inputs(self) -> Inputs:
        """Return the messages since the last assistant message."""
        inputs = inputs_of(self._output, self._input_messages, self._brought)
        if all(message.call_id is not None for message in self._input_messages):
            return inputs
        interjected = any(inputs.results) and self._user_with_results is False
        starts_task = self._begins_task(inputs.shape)
        return replace(inputs, user=True, starts_task=starts_task, interjected=interjected)

    def _begins_task(self, shape: int) -> bool:
        """Whether a user message of this shape begins a task.

        The first message does, and one that follows an agent's last word (a reply without calls,
        after calls), and one that equals the message that began the task: a heartbeat.
        """
        if not self._turns:
            return True
        task_inputs = self._turns[self._task_start].inputs
        is_repeated = task_inputs.starts_task and task_inputs.shape == shape
        return is_repeated or (self._has_acted and not self._turns[-1].calls)


_NOTHING: Final = _Reading()
_PART_NAMES: Final = itertools.count()
_INPUT_BYTES: Final = 300  # about what a message takes that no assistant message follows yet


class _Session:
    """What is remembered of one session."""

    def __init__(self) -> None:
        self.seen = SeenTurns()
        self.known: Known[_Reading] = Known(MAX_READINGS)
        self.bytes = 0  # about how many this takes

    def weigh(self) -> None:
        parts: dict[int, int] = {}
        for reading in self.known.values():
            parts.update(reading.parts)
        self.bytes = self.seen.bytes + sum(parts.values())
