"""A session's history: the turns of a request's messages, or of the session's last exchanges.

Messages are read in order, because an input's meaning depends on the turns before it. A session
caches what it has read of its transcripts' beginnings (``wire/blocks.py``), so only new messages
are read. A branch, a parallel sub-agent, an edited or a compacted transcript has the history of its
own messages. A message keeps the meaning that it had when it was new.
"""

from __future__ import annotations

import copy
import itertools
from collections.abc import Collection, Iterable, Mapping, Sequence
from sys import getsizeof
from typing import Any, Final

from msgspec.structs import replace

from ..likeness import Digest
from ..recent import Recent, RecentByBytes
from ..wire.delta import text_of
from .call_keys import CallKey
from .turns import (
    NOTHING_YET,
    InputMessage,
    Inputs,
    Output,
    ResultKey,
    Turn,
    input_message_of,
    inputs_of,
    is_input,
    output,
    output_of,
)

MAX_SEEN: Final = 1024  # turns of a session whose inputs are kept
MAX_BYTES: Final = 4 * 1024 * 1024  # of these turns and their inputs
MAX_REPLIES: Final = 128  # calls of a session that identify the turns before them
MAX_BEFORE: Final = 48  # turns that are restored before a reply: three laps of the longest cycle
MAX_TEXT: Final = 200_000  # compared characters of a text; a summary is shorter
MAX_TEXTS: Final = 4  # replies without calls that identify the turns before them
_INPUT_BYTES: Final = 300  # the approximate size of a message that no assistant message follows yet
_PART_NAMES: Final = itertools.count()


class SeenTurns:
    """The turns of one session that its client may later remove from the transcript.

    If the client clears a result, :meth:`at` finds it by its turn's place. If the transcript begins
    within a task (the client compacted it, or sends only its end), the turns before it are found by
    its first reply: by the id of a call in that reply, or by a text of the model's that the user's
    message quotes, as compaction does with a summary. Each memory is bounded, and drops its oldest
    entries.
    """

    __slots__ = ("_inputs", "_replies", "_texts", "_turns")

    def __init__(self) -> None:
        self._turns: RecentByBytes[int, Turn] = RecentByBytes(
            MAX_SEEN, MAX_BYTES, lambda turn: turn.bytes
        )
        # By a turn's place: the inputs that followed it.
        self._inputs: RecentByBytes[int, Inputs] = RecentByBytes(
            MAX_SEEN, MAX_BYTES, lambda one: one.bytes
        )
        # The place of the turn before a reply: by a call of the reply, by the lines of its text.
        self._replies: Recent[int, int | None] = Recent(MAX_REPLIES)
        self._texts: list[tuple[frozenset[int], int]] = []

    @property
    def bytes(self) -> int:
        """The approximate size in memory."""
        return self._turns.bytes + self._inputs.bytes

    def new(self, place: int, inputs: Inputs) -> None:
        self._inputs[place] = inputs

    def at(self, place: int, inputs: Inputs) -> Inputs:
        """Return the inputs that first followed this turn; ``inputs`` if none are known."""
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
            # an ambiguous id finds nothing
            self._replies[key] = place if known_place == place else None
        if not keys and turns and inputs.user and any(inputs.results) and (lines := _lines(text)):
            # The user may have asked for a summary. The work then continues from these results, as
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
        """Return the turns before the reply of which this text quotes over half the lines."""
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


class History:
    """The turns up to some message, and the input that the next reply answers.

    A history is immutable once made: each method returns another one.
    """

    def __init__(self) -> None:
        self.turns: list[Turn] = []  # oldest first
        self.pending: Inputs = NOTHING_YET  # the input after them, set by `with_pending_input`
        self.place = 0  # identifies the transcript so far, including the pending input
        # The first turn of the current task; one past the end if the task has no turn yet.
        self.task_start = 0
        self.replies: tuple[Digest, ...] = ()  # text replies, for `similar_replies`; oldest first
        self._repeats: bool | None = None  # None: not computed yet
        self._has_acted = False  # whether calls were made in the current task
        # Whether the last input with tool results also had words of the user's.
        self._user_with_results: bool | None = None
        self._output: Output | None = None  # the last assistant message
        self._input_messages: list[InputMessage] = []  # the messages since then
        self._results: set[ResultKey] = set()  # what calls have returned in the current task
        self._opening = ""  # the text of the last message before the assistant's first
        self._earlier: History | None = None  # the one that was weighed before, until this one is
        self._parts: dict[int, int] = {}

    @property
    def task(self) -> list[Turn]:
        """The turns of the current task."""
        return self.turns[self.task_start :]

    @property
    def repeats(self) -> bool:
        """Whether the newest turn's action occurred earlier in this task."""
        if self._repeats is None:
            actions = [turn.action for turn in self.task]
            self._repeats = actions.count(actions[-1]) > 1 if actions else False
        return self._repeats

    def _copy(self) -> History:
        other = copy.copy(self)
        other.turns, other._repeats = self.turns[:], None
        return other

    def extended_by(
        self,
        messages: Sequence[Mapping[str, Any]],
        seen: SeenTurns,
        failed: Collection[str],
        *,
        salient: bool,
    ) -> History:
        """Return this history extended by the next messages."""
        other = self._copy()
        other._earlier = self._earlier or self
        other._input_messages, other._results = self._input_messages[:], self._results.copy()
        for message in messages:
            if message.get("role") == "assistant":
                other._take(output_of(message, salient=salient), seen)
            elif is_input(message):
                waiting = other._input_messages
                waiting.append(input_message_of(message, failed, other._output, len(waiting)))
                if other._output is None:
                    other._opening = text_of(message.get("content"))[:MAX_TEXT]
        return other

    def with_pending_input(self, seen: SeenTurns) -> History:
        """Return this history with the last messages as its pending input."""
        other = self._copy()
        if self._output is None:
            other._continue_from(seen.before_text(self._opening))
            inputs = other._first_inputs(seen)
        else:
            inputs = other._inputs()
        place = other.turns[-1].place if other.turns else 0
        if self._input_messages and other.turns and None not in inputs.results:
            seen.new(place, inputs)
        other.pending, other.place = inputs, hash((place, inputs.digest))
        if inputs.starts_task:
            other.task_start = len(other.turns)
        return other

    def with_reply(
        self, text: str, calls: Iterable[CallKey], digest: Digest | None = None
    ) -> History:
        """Return this history with a reply as its newest turn. ``digest``: the text's, if any."""
        reply, other = output(text, [(call, "", ()) for call in calls]), self._copy()
        other.turns.append(reply.turn(self.pending, self.turns[-1] if self.turns else None))
        other.pending = NOTHING_YET
        other.replies = (*self.replies, digest) if digest is not None else ()
        return other

    def after(self, turns: list[Turn]) -> History:
        """Return this history after the session's last turns, for a client without transcripts.

        A request with another input than the previous one starts a new task.
        """
        other = self._copy()
        starts_task = turns[-1].inputs.digest != self.pending.digest
        other.pending = replace(self.pending, starts_task=starts_task)
        other.turns, other.task_start = turns, len(turns) if starts_task else _task_start(turns)
        return other

    def _take(self, reply: Output, seen: SeenTurns) -> None:
        """Read an assistant message, which ends a turn."""
        if self._output is None:
            earlier_turns = seen.before_calls(zip(reply.calls, reply.ids, strict=False))
            self._continue_from(earlier_turns or seen.before_text(self._opening))
            self._opening = ""
        inputs = self._first_inputs(seen)
        if any(inputs.results):
            self._user_with_results = inputs.user
        if inputs.starts_task:
            self.task_start = len(self.turns)
            self._results.clear()
        self._results.update(inputs.brought)
        self._has_acted = bool(reply.calls) or (self._has_acted and not inputs.starts_task)
        self.turns.append(reply.turn(inputs, self.turns[-1] if self.turns else None))
        self._output, self._input_messages = reply, []

    def _continue_from(self, turns: list[Turn]) -> None:
        """Insert remembered turns before a transcript that begins within a task."""
        if turns:
            self.turns, self.task_start = turns, _task_start(turns)
            self._has_acted = any(turn.calls for turn in self.task)
            self._results = {brought for turn in self.task for brought in turn.inputs.brought}
            self._user_with_results = False

    def _first_inputs(self, seen: SeenTurns) -> Inputs:
        """Return the inputs as first received, because a client may clear results later."""
        inputs = self._inputs()
        return seen.at(self.turns[-1].place, inputs) if self.turns else inputs

    def _inputs(self) -> Inputs:
        """Return the messages since the last assistant message."""
        inputs = inputs_of(self._output, self._input_messages, self._results)
        if all(message.call_id is not None for message in self._input_messages):
            return inputs
        interjected = any(inputs.results) and self._user_with_results is False
        starts_task = self._begins_task(inputs.shape)
        return replace(inputs, user=True, starts_task=starts_task, interjected=interjected)

    def _begins_task(self, shape: int) -> bool:
        """Whether a user message of this shape begins a task.

        The first message does, and one that follows an agent's final reply (without calls, after
        calls), and one that equals the message that began the task: a heartbeat.
        """
        if not self.turns:
            return True
        task_inputs = self.turns[self.task_start].inputs
        is_repeated = task_inputs.starts_task and task_inputs.shape == shape
        return is_repeated or (self._has_acted and not self.turns[-1].calls)

    def parts(self) -> dict[int, int]:
        """Return each part's approximate size; histories that extend one share its parts."""
        if (earlier := self._earlier) is not None:
            texts = [self._opening]
            if self._output is not None:
                texts += [*self._output.ids, *itertools.chain(*self._output.values)]
            size = sum([turn.bytes for turn in self.turns[len(earlier.turns) :]])
            size += len(self._input_messages) * _INPUT_BYTES + sum(map(len, texts))
            size += sum(map(getsizeof, (self.turns, self._input_messages, self._results)))
            self._parts = {**earlier.parts(), next(_PART_NAMES): size}
            self._earlier = None
        return self._parts


def _task_start(turns: Sequence[Turn]) -> int:
    starts = [index for index, turn in enumerate(turns) if turn.inputs.starts_task]
    return starts[-1] if starts else 0
