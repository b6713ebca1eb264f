"""A transcript as turns: its messages read, one after the other."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from . import call_keys, told_calls
from .blocks import dumped
from .call_keys import Call, digest
from .chunks import text_of
from .progress import Tally
from .texts import MAX_WORDS, collapse, facts, sentences
from .tool_errors import is_error, may_be_verdict, says_nothing
from .turn import Inputs, Result, Turn

MAX_TURNS: Final = 512  # kept of a transcript; the detectors look back no further
TURN_BYTES: Final = 512  # about what a turn takes, and each call in it, beside its words
_THINKING: Final = re.compile(r"<think(?:ing)?>.*?(?:</think(?:ing)?>|\Z)", re.DOTALL)


def output(text: str, calls: Iterable[Call], inputs: Inputs, before: int) -> Turn:
    """The turn of an assistant message with this text and these calls.

    ``before``: the place of the turn before it, 0 for the first.
    """
    visible = _THINKING.sub(" ", text) if "<think" in text else text
    collapsed = collapse(visible)
    said = digest(collapsed)
    made = tuple(sorted(calls))
    return Turn(
        inputs,
        said,
        collapsed if len(collapsed) <= MAX_WORDS else sentences(visible),
        # Seldom asked for; long texts are not kept for it.
        visible if len(visible) <= MAX_WORDS else facts(visible),
        made,
        hash((before, inputs.digest, said, made)),
    )


class _Input(NamedTuple):
    role: str
    call_id: str
    result: Result


class Transcript:
    """Makes turns of messages, one message at a time. Copies are cheap.

    ``tally``: of the turns' calls; None where it went along with a copy. ``size``: about how many
    bytes of memory the turns take.
    """

    __slots__ = (
        "_came",
        "_ids",
        "_inputs",
        "_told",
        "_user_beside_results",
        "size",
        "tally",
        "turns",
    )

    def __init__(self, tally: Tally | None) -> None:
        self.turns: tuple[Turn, ...] = ()
        self.size = 0
        self.tally = tally
        self._inputs: list[_Input] = []
        self._told = False  # whether the last assistant message told its calls as text
        self._came: Inputs | None = None  # what they come to, once somebody has asked
        self._ids: dict[str, int] = {}  # the last assistant message's call ids → place in `calls`
        # Whether the last input that held tool results held words of the user's, too.
        self._user_beside_results: bool | None = None

    def copy(self) -> Transcript:
        """As it stands now, without the tally."""
        new = Transcript(None)
        new.turns = self.turns
        new.size = self.size
        new._inputs = list(self._inputs)
        new._told = self._told
        new._came = self._came
        new._ids = self._ids  # never changed in place
        new._user_beside_results = self._user_beside_results
        return new

    def continued(self) -> Transcript:
        """A copy to go on with, which takes the tally along."""
        new = self.copy()
        new.tally, self.tally = self.tally or Tally(self.turns), None
        return new

    def add(self, message: Mapping[str, Any]) -> None:
        """Take the next message."""
        role = message.get("role")
        if role == "assistant":
            self._take_output(message)
        elif role not in ("system", "developer"):
            identity = message.get("tool_call_id")
            is_tool = role in ("tool", "function")
            content = message.get("content")
            if self._told and not is_tool and (told := told_calls.result(content)) is not None:
                content, is_tool = told, True
            result = _result(content, of_tool=is_tool)
            name = "tool" if is_tool else "user"
            self._inputs.append(_Input(name, identity if isinstance(identity, str) else "", result))
            self._came = None

    def inputs(self) -> Inputs:
        """What has come since the last assistant message."""
        if self._came is None:
            self._came = self._read_inputs()
        return self._came

    def _read_inputs(self) -> Inputs:
        last = self.turns[-1] if self.turns else None
        results: list[Result | None] = [None] * (len(last.calls) if last is not None else 0)
        others: list[tuple[str, int]] = []
        user = answered = False
        for position, one in enumerate(self._inputs):
            at = self._place_of(one, position, results)
            if at is not None and results[at] is None:
                results[at] = one.result
                answered = True
            else:
                others.append((one.role, one.result.digest))
                user = user or one.role == "user"
        parts = [str(one.digest if one else 0) for one in results] if answered else []
        return Inputs(
            digest(*parts, *(f"{role} {content}" for role, content in others)),
            tuple(results),
            user,
            starts_task=user and (last is None or not last.calls),
            interjected=user and answered and self._user_beside_results is False,
        )

    def _place_of(self, one: _Input, position: int, results: Sequence[Result | None]) -> int | None:
        """Which call of the last assistant message an input answers."""
        if one.role != "tool":
            return None
        if one.call_id in self._ids:
            return self._ids[one.call_id]
        # Without ids (older forms, careless clients) answers come in the order of the calls.
        return position if not one.call_id and position < len(results) else None

    def _take_output(self, message: Mapping[str, Any]) -> None:
        inputs = self.inputs()
        if any(inputs.results):
            self._user_beside_results = inputs.user
        text = text_of(message.get("content"))
        made = _calls(message)
        text, told = (text, []) if made else told_calls.split(text)
        self._told = bool(told)
        calls = [(_read(call), call.get("id")) for call in made or told]
        if len(calls) > 1:
            calls.sort(key=lambda pair: pair[0])
        before = self.turns[-1].place if self.turns else 0
        turn = output(text, [call for call, _ in calls], inputs, before)
        self.size += _size(turn)
        if self.tally is not None:
            self.tally.take(turn)
        if len(self.turns) == MAX_TURNS:
            if self.tally is not None and self.tally.turns > MAX_TURNS:
                self.tally.drop(self.turns[0])
            self.size -= _size(self.turns[0])
            self.turns = self.turns[1:]
        self.turns += (turn,)
        self._ids = {id: at for at, (_, id) in enumerate(calls) if isinstance(id, str) and id}
        self._inputs = []
        self._came = None


def _size(turn: Turn) -> int:
    size = sys.getsizeof(turn.words) + TURN_BYTES * (1 + len(turn.calls))
    if isinstance(turn.facts_in, str) and turn.facts_in is not turn.words:
        size += sys.getsizeof(turn.facts_in)
    return size + sum([len(call.name) for call in turn.calls])


def _result(content: Any, *, of_tool: bool) -> Result:
    raw = text_of(content)
    text = collapse(raw)
    parts: list[bytes] = []
    if isinstance(content, list):
        parts = [dumped(p) for p in content if not (isinstance(p, Mapping) and "text" in p)]
    failed = of_tool and is_error(raw)
    empty = not text and not parts
    nothing = of_tool and not parts and not empty and says_nothing(text)
    brief = not parts and may_be_verdict(text)
    return Result(digest(text, *parts), failed, empty, nothing, brief)


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
