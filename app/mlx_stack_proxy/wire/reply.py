"""Gathers the events of a reply into the reply as it stands so far."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

import orjson

from .events import (
    Event,
    Finish,
    OtherDelta,
    ReasoningDelta,
    RefusalDelta,
    TextDelta,
    ToolCallDelta,
    UpstreamErrorEvent,
    Usage,
)
from .json_text import JsonEnd

MAX_CALLS: Final = 128  # of one choice; OpenAI allows as many tools in a request


class ToolCall:
    """One tool call, put together from its pieces, which are joined when they are asked for."""

    __slots__ = ("_json", "_pieces", "_whole", "again", "id", "name", "odd", "was_object")

    def __init__(
        self, id: str, name: str, arguments: str, was_object: bool = False, odd: bool = False
    ) -> None:
        self.id = id
        self.name = name
        self._pieces = [arguments]
        self.was_object = was_object  # upstream sent an object, but clients need its text
        self.odd = odd  # a client that joins the pieces itself might get another call
        # The tool that a piece without an id named when this call was complete: arguments that
        # follow begin another call of this tool. "": no such piece has come.
        self.again = ""
        self._json: JsonEnd | None = None  # made once somebody asks whether the call is complete
        self._whole: bool | None = None  # whether the arguments, once complete, are an object

    @property
    def arguments(self) -> str:
        """The arguments as the model wrote them, meant to be a JSON object."""
        if len(self._pieces) > 1:
            self._pieces = ["".join(self._pieces)]
        return self._pieces[0]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ToolCall) and self._values() == other._values()

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"ToolCall{self._values()}"

    def _values(self) -> tuple[str | bool, ...]:
        return self.id, self.name, self.arguments, self.was_object, self.odd, self.again

    def ends_before(self, delta: ToolCallDelta) -> bool:
        """Whether a piece with this call's index begins another call.

        Some servers leave the index out, or give all calls the same; LiteLLM makes it 0 for each.
        """
        name = delta.name or self.again
        if not name or not self.name:
            return False
        if delta.id and self.id:
            return delta.id != self.id
        if name != self.name:
            return self._is_object() or self._end().blank
        # The server sent the same call twice if name and arguments are equal.
        new_arguments = delta.arguments.strip()
        if not new_arguments or not self._is_object():
            return False
        return new_arguments != self.arguments.strip()

    def goes_on_with(self, delta: ToolCallDelta) -> bool:
        """Whether a piece with a new index is this call's: it has arguments, this call only a name.

        SGLang makes two entries of one call so.
        """
        bare = not delta.name and not delta.id and bool(delta.arguments.strip())
        return bare and bool(self.name) and self._end().blank

    def add(self, delta: ToolCallDelta) -> None:
        """Take in a further piece."""
        # A repeated id or name is odd: many clients append it, as they append arguments.
        repeated = (self.id and delta.id) or (self.name and delta.name)
        self.odd = self.odd or delta.odd or bool(repeated)
        if delta.name and not delta.id and self._is_object():
            self.again = delta.name
        self.id = self.id or delta.id
        self.name = self.name or delta.name
        self._pieces.append(delta.arguments)
        if self._json is not None:
            self._json.add(delta.arguments)
        self.was_object = self.was_object or delta.was_object

    def _is_object(self) -> bool:
        """Whether the arguments so far are one JSON object. They are parsed once at most."""
        if not self._end().reached:
            return False
        if self._whole is None:
            self._whole = is_object(self.arguments)
        return self._whole

    def _end(self) -> JsonEnd:
        if self._json is None:
            self._json = JsonEnd()
            self._json.add(self.arguments)
        return self._json


class ChoiceReply:
    """One alternative of a reply. Stages may change ``tool_calls`` while they mend."""

    __slots__ = (
        "_calls",
        "_reasoning",
        "_text",
        "add_text",
        "finish_reason",
        "finished_at",
        "has_other",
        "refusal",
        "tool_calls",
    )

    def __init__(self) -> None:
        self._text: list[str] = []
        self.add_text = self._text.append
        self._reasoning: list[str] = []
        self._calls: dict[int, ToolCall] = {}
        self.refusal = ""
        self.has_other = False  # audio or images
        self.tool_calls: list[ToolCall] = []
        self.finish_reason: str | None = None
        self.finished_at = 0  # pieces that the reply had when this choice finished

    @property
    def text(self) -> str:
        if len(self._text) > 1:
            self._text[:] = ["".join(self._text)]
        return self._text[0] if self._text else ""

    @text.setter
    def text(self, value: str) -> None:
        self._text[:] = [value]

    @property
    def reasoning(self) -> str:
        if len(self._reasoning) > 1:
            self._reasoning = ["".join(self._reasoning)]
        return self._reasoning[0] if self._reasoning else ""

    def add_call(self, delta: ToolCallDelta) -> None:
        call = self._calls.get(delta.index)
        if call is not None and not call.ends_before(delta):
            call.add(delta)
            return
        if call is None and self.tool_calls and self.tool_calls[-1].goes_on_with(delta):
            call = self._calls[delta.index] = self.tool_calls[-1]
            call.add(delta)
            call.odd = True
            return
        name = delta.name or (call.again if call is not None else "")
        # Clients order calls by their index, so an index out of order is odd.
        odd = delta.odd or call is not None or delta.index != len(self.tool_calls)
        call = ToolCall(delta.id, name, delta.arguments, delta.was_object, odd)
        self._calls[delta.index] = call
        self.tool_calls.append(call)

    def add_reasoning(self, text: str) -> None:
        self._reasoning.append(text)


LONG: Final = 8_000  # characters of a reply


@dataclass(slots=True)
class Reply:
    """All choices of one attempt."""

    choices: dict[int, ChoiceReply] = field(default_factory=dict)
    usage: Usage | None = None
    error: UpstreamErrorEvent | None = None
    mended: set[int] = field(default_factory=set)  # choices that must be written anew
    finished: bool = False  # every choice seen so far has its finish_reason
    overfull: bool = False  # a choice has more than MAX_CALLS calls
    cut: bool = False  # we ended the call, so its usage never came
    whole: bool = False  # it came as one object, not as a stream
    generated: int = 0  # UTF-8 bytes that the model wrote, before stages took any out
    pieces: int = 0  # pieces of text, reasoning, calls and other content that came
    counted: int = 0  # pieces that had come when `usage` did
    flowed: int = 0  # characters of the (only) choice's text that the client has
    _unfinished: set[int] = field(default_factory=set)

    def written(self) -> int:
        """UTF-8 bytes that the model wrote, also those that stages took out."""
        size = 0
        for choice in self.choices.values():
            calls = "".join([call.name + call.arguments for call in choice.tool_calls])
            text = choice.text + choice.reasoning + choice.refusal + calls
            size += len(text.encode("utf-8", "surrogatepass"))
        return max(size, self.generated)

    @property
    def is_long(self) -> bool:
        """Whether texts, thoughts and arguments are so long that to judge them may take 10 ms."""
        size = 0
        for choice in self.choices.values():
            size += len(choice.text) + len(choice.reasoning)
            size += sum([len(call.arguments) for call in choice.tool_calls])
        return size > LONG

    @property
    def has_calls(self) -> bool:
        return any(choice.tool_calls for choice in self.choices.values())

    def choice(self, index: int) -> ChoiceReply:
        choice = self.choices.get(index)
        if choice is None:
            choice = self.choices[index] = ChoiceReply()
            self._unfinished.add(index)
            self.finished = False
        return choice

    def _finish(self, event: Finish) -> None:
        """Take in a finish. A choice that finishes twice is written anew, with one finish.

        The first reason stays if nothing came in between: some servers send `tool_calls`, then
        `stop`.
        """
        choice = self.choice(event.choice)
        if choice.finish_reason is not None:
            self.mended.add(event.choice)
        if choice.finish_reason is None or self.pieces > choice.finished_at:
            choice.finish_reason = event.reason
        choice.finished_at = self.pieces
        if choice.finish_reason:
            self._unfinished.discard(event.choice)
        self.finished = not self._unfinished

    def apply(self, event: Event) -> None:
        """Take in one event."""
        kind = type(event)
        if kind is TextDelta:
            choice = self.choices.get(event.choice)  # type: ignore[union-attr]
            if choice is None:
                choice = self.choice(event.choice)  # type: ignore[union-attr]
            choice.add_text(event.text)  # type: ignore[union-attr]
            self.pieces += 1
        elif kind is ReasoningDelta:
            self.choice(event.choice).add_reasoning(event.text)  # type: ignore[union-attr]
            self.pieces += 1
        elif isinstance(event, ToolCallDelta):
            choice = self.choice(event.choice)
            choice.add_call(event)
            self.pieces += 1
            if len(choice.tool_calls) > MAX_CALLS:
                self.overfull = True
        elif isinstance(event, Finish):
            self._finish(event)
        elif isinstance(event, Usage):
            self.usage = event
            self.counted = self.pieces
        elif isinstance(event, RefusalDelta):
            self.choice(event.choice).refusal += event.text
            self.pieces += 1
        elif isinstance(event, UpstreamErrorEvent):
            self.error = event
        elif isinstance(event, OtherDelta):
            self.choice(event.choice).has_other = True
            self.pieces += 1


def is_object(arguments: str) -> bool:
    """Whether a call's arguments are one JSON object: servers accept nothing else in a history."""
    try:
        return isinstance(orjson.loads(arguments), dict)
    except orjson.JSONDecodeError:
        return False
