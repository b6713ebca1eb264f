"""A transcript as turns: its messages read, one after the other."""

from __future__ import annotations

import copy
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final, NamedTuple

from ..wire.blocks import dumped
from ..wire.chunks import text_of
from . import call_keys
from .call_keys import Call, digest
from .seen import MAX_TURNS, Before, Seen
from .texts import action_in, brought_in, collapse, told_calls, without_numbers
from .turn import Inputs, Result, Turn

TURN_BYTES: Final = 600  # about what a turn takes, and each call in it


def output(text: str, calls: Sequence[Call], inputs: Inputs, before: Turn | None) -> Turn:
    """The turn of an assistant message with this text and these calls; ``before``: the one before.

    The first one's place is told by what the user asked.
    """
    action = digest(action_in(text))
    made = tuple(sorted(calls))
    place = hash((before.place if before else inputs.digest, action, made))
    if made:
        action = digest(*[call.key.to_bytes(8, "little") for call in made])
    return Turn(inputs, action, made, place)


class _Input(NamedTuple):
    role: str
    call_id: str
    result: Result


class Transcript:
    """Makes turns of messages, one message at a time. Copies are cheap.

    ``task_start``: the first turn of what the user asked for last. ``size``: about how many bytes
    of memory the turns take.
    """

    __slots__ = (
        "_acts",
        "_came",
        "_ids",
        "_inputs",
        "_quoted",
        "_seen",
        "_user_beside_results",
        "size",
        "task_start",
        "turns",
    )

    def __init__(self, seen: Seen) -> None:
        self.turns: tuple[Turn, ...] = ()
        self.task_start = 0
        self.size = 0
        self._seen = seen
        self._inputs: list[_Input] = []
        self._quoted: Before | None = None  # by the user's last message before the first turn
        self._acts = False  # whether calls were made in the task at hand
        self._came: Inputs | None = None  # what they come to, once somebody has asked
        self._ids: dict[str, int] = {}  # the last assistant message's call ids → place in `calls`
        # Whether the last input that held tool results held words of the user's, too.
        self._user_beside_results: bool | None = None

    def copy(self) -> Transcript:
        """As it stands now."""
        new = copy.copy(self)
        new._inputs = list(self._inputs)  # all else is never changed in place
        return new

    def add(self, message: Mapping[str, Any], failed: Collection[str] = ()) -> None:
        """Take the next message. ``failed``: the ids of calls whose results are errors."""
        role = message.get("role")
        if role == "assistant":
            self._take_output(message)
        elif role not in ("system", "developer"):
            identity = message.get("tool_call_id")
            is_tool = role in ("tool", "function")
            content = message.get("content")
            call_id = identity if isinstance(identity, str) else ""
            result = _result(content, is_error=call_id in failed)
            if not self.turns:
                self._quoted = self._seen.quoted_in(text_of(content))
            self._inputs.append(_Input("tool" if is_tool else "user", call_id, result))
            self._came = None

    def pending(self) -> Inputs:
        """What has come since the last assistant message, the transcript's last one."""
        if not self.turns:
            self._go_on_from(self._quoted)
        inputs = self._read_inputs()
        if self._inputs and self.turns and None not in inputs.results:
            self._seen.new(self.turns[-1].place, inputs)
        return inputs

    def _read_inputs(self) -> Inputs:
        if self._came is None:
            self._came = self._inputs_read()
        return self._came

    def _inputs_read(self) -> Inputs:
        last = self.turns[-1] if self.turns else None
        results: list[Result | None] = [None] * (len(last.calls) if last is not None else 0)
        others: list[Result] = []
        user = answered = False
        for position, one in enumerate(self._inputs):
            at = self._place_of(one, position, results)
            if at is not None and results[at] is None:
                results[at] = one.result
                answered = True
            else:
                others.append(one.result)
                user = user or one.role == "user"
        came = results if answered else others
        shape = digest(*[str(one.shape if one else 0) for one in came])
        return Inputs(
            digest(*[str(one.digest if one else 0) for one in came]),
            shape,
            tuple(results),
            user,
            starts_task=user and self._begins(shape),
            interjected=user and answered and self._user_beside_results is False,
        )

    def _begins(self, shape: int) -> bool:
        """Whether what the user says, of this shape, begins a task.

        It does first of all, after an agent that made calls has ended without one, and where it
        is asked once more what began the task at hand: a heartbeat.
        """
        if not self.turns:
            return True
        asked = self.turns[self.task_start].inputs
        again = asked.starts_task and asked.shape == shape
        return again or (self._acts and not self.turns[-1].calls)

    def _place_of(self, one: _Input, position: int, results: Sequence[Result | None]) -> int | None:
        """Which call of the last assistant message an input answers."""
        if one.role != "tool":
            return None
        if one.call_id in self._ids:
            return self._ids[one.call_id]
        # Without ids (older forms, careless clients) answers come in the order of the calls.
        return position if not one.call_id and position < len(results) else None

    def _take_output(self, message: Mapping[str, Any]) -> None:
        text = text_of(message.get("content"))
        made = _calls(message) or told_calls(text)
        calls = [(_read(call), _id(call)) for call in made]
        if len(calls) > 1:
            calls.sort(key=lambda pair: pair[0])
        if not self.turns:
            self._go_on_from(self._seen.before_calls(calls) or self._quoted)
        last = self.turns[-1] if self.turns else None
        inputs = self._read_inputs()
        if last is not None:
            inputs = self._seen.at(last.place, inputs)
        if any(inputs.results):
            self._user_beside_results = inputs.user
        self._take(output(text, [call for call, _ in calls], inputs, last))
        self._ids = {id: at for at, (_, id) in enumerate(calls) if id}
        self._inputs = []
        self._came = None

    def _go_on_from(self, before: Before | None) -> None:
        """Begin behind what was done before; what the messages so far say of it is no input."""
        if before is None or not before.turns:
            return
        self.turns, self.task_start = before.turns, before.task_start
        self._acts = any(turn.calls for turn in before.turns[before.task_start :])
        self.size = sum(map(_size, before.turns))
        self._came = before.inputs
        self._user_beside_results = False

    def _take(self, turn: Turn) -> None:
        self._acts = bool(turn.calls) or (self._acts and not turn.inputs.starts_task)
        if len(self.turns) == MAX_TURNS:
            self.size -= _size(self.turns[0])
            self.turns = self.turns[1:]
            self.task_start = max(self.task_start - 1, 0)
        if turn.inputs.starts_task:
            self.task_start = len(self.turns)
        self.size += _size(turn)
        self.turns += (turn,)


def _size(turn: Turn) -> int:
    return TURN_BYTES * (1 + len(turn.calls)) + sum([len(call.name) for call in turn.calls])


def _result(content: Any, *, is_error: bool) -> Result:
    """A tool's answer. An error's numbers (a line, an id) are no news: it is its shape."""
    text = collapse(brought_in(text_of(content)))
    parts: list[bytes] = []
    if isinstance(content, list):
        parts = [dumped(p) for p in content if not (isinstance(p, Mapping) and "text" in p)]
    shape = digest(without_numbers(text), *parts)
    return Result(shape if is_error else digest(text, *parts), shape, len(text))


def _calls(message: Mapping[str, Any]) -> Sequence[Mapping[str, Any]]:
    calls = message.get("tool_calls")
    found = [c for c in calls if isinstance(c, dict)] if isinstance(calls, list) else []
    if not found and isinstance(message.get("function_call"), dict):
        found = [{"function": message["function_call"]}]
    return found


def _read(call: Mapping[str, Any]) -> Call:
    function = call.get("function")
    function = function if isinstance(function, dict) else {}
    name = function.get("name")
    return call_keys.read(name if isinstance(name, str) else "", function.get("arguments"))


def _id(call: Mapping[str, Any]) -> str:
    id = call.get("id")
    return id if isinstance(id, str) else ""
