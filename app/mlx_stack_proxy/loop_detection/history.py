"""A session's history: the turns of a request's messages, or of the session's last exchanges.

:class:`HistoryReader` remembers the steps of each block of messages (``wire/blocks.py``), so only
new messages are read. It puts the turns together anew for each request: a branch, a parallel
sub-agent, an edited or a compacted transcript has the history that its own messages tell.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from itertools import pairwise, takewhile
from typing import Any, Final

from ..wire.blocks import BLOCK, Blocks
from ..wire.chunks import text_of
from .call_keys import Call
from .seen import Recent, Seen
from .turn import NOTHING_YET, Inputs, Turn
from .turns import Output, Step, is_given, joined, output, steps_in

MAX_SESSIONS: Final = 256  # sessions whose turns are remembered (`Seen`)
MAX_BLOCKS: Final = 4096  # blocks whose steps are remembered: 300 transcripts of 400 messages


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
    """Reads histories. Remembers the steps of blocks and the turns of sessions."""

    def __init__(self) -> None:
        self._blocks: Recent[int, Sequence[Step]] = Recent(MAX_BLOCKS)
        self._sessions: Recent[str, Seen] = Recent(MAX_SESSIONS)

    def read(self, session: str, blocks: Blocks, failed: Collection[str] = ()) -> History:
        """Return the history that a request's messages tell. ``session``: the session's hash.

        ``failed``: the ids of calls whose results are errors.
        """
        steps = joined(self._parts(blocks), failed)
        seen = self._seen_of(session)
        return _Reading(seen, _turns_before(steps, blocks.messages, seen)).history(steps)

    def replied(
        self, session: str, history: History, text: str, calls: Sequence[tuple[Call, str]]
    ) -> None:
        """Remember the turns before a reply: its client may compact the transcript later."""
        self._seen_of(session).replied(history.turns, history.pending, text, calls)

    def forget(self, session: str) -> None:
        self._sessions.pop(session, None)

    def _parts(self, blocks: Blocks) -> Iterator[Sequence[Step]]:
        """Yield the steps of each block, then those of the messages after the last block."""
        said, names = blocks.messages, blocks.names
        for at, name in enumerate(names):
            known = self._blocks.get(name)
            steps = known or steps_in(said[at * BLOCK : (at + 1) * BLOCK])
            self._blocks[name] = steps  # refresh it
            yield steps
        yield steps_in(said[len(names) * BLOCK :])

    def _seen_of(self, session: str) -> Seen:
        seen = self._sessions[session] = self._sessions.get(session) or Seen()
        return seen


def _turns_before(steps: Sequence[Step], messages: Sequence[Any], seen: Seen) -> list[Turn]:
    """Return the remembered turns before a transcript that begins in the midst of a task."""
    first = steps[1].output if len(steps) > 1 else None
    if first is not None and (
        turns := seen.before_calls(zip(first.calls, first.ids, strict=False))
    ):
        return turns
    begin = takewhile(lambda message: message.get("role") != "assistant", messages)
    asked = list(filter(is_given, begin))
    return seen.before_text(text_of(asked[-1].get("content"))) if asked else []


class _Reading:
    """Puts the turns together in order, for an input's meaning depends on the turns before it."""

    def __init__(self, seen: Seen, before: list[Turn]) -> None:
        self._seen = seen
        self._turns = before
        starts = [at for at, turn in enumerate(before) if turn.inputs.starts_task]
        self._task_start = starts[-1] if starts else 0
        # Whether calls were made in the task at hand.
        self._acts = any(turn.calls for turn in before[self._task_start :])
        # Whether the last input that held tool results held words of the user's, too.
        self._user_beside_results: bool | None = False if before else None

    def history(self, steps: Sequence[Step]) -> History:
        for step, following in pairwise(steps):
            assert following.output is not None
            self._take(self._as_shown(step.inputs), following.output)
        given, inputs = steps[-1].given, steps[-1].inputs
        inputs = self._as_shown(inputs) if len(steps) == 1 else self._in_context(inputs)
        turns = self._turns
        place = turns[-1].place if turns else 0
        if given and turns and None not in inputs.results:
            self._seen.new(place, inputs)
        return History(tuple(turns), inputs, hash((place, inputs.digest)), self._task_start)

    def _as_shown(self, inputs: Inputs) -> Inputs:
        """Return the inputs as they first came, for a client may clear results later."""
        inputs = self._in_context(inputs)
        return self._seen.at(self._turns[-1].place, inputs) if self._turns else inputs

    def _in_context(self, inputs: Inputs) -> Inputs:
        if not inputs.user:
            return inputs
        beside = any(inputs.results) and self._user_beside_results is False
        return replace(inputs, starts_task=self._begins(inputs.shape), interjected=beside)

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

    def _take(self, inputs: Inputs, made: Output) -> None:
        if any(inputs.results):
            self._user_beside_results = inputs.user
        if inputs.starts_task:
            self._task_start = len(self._turns)
        self._acts = bool(made.calls) or (self._acts and not inputs.starts_task)
        self._turns.append(made.turn(inputs, self._turns[-1] if self._turns else None))
