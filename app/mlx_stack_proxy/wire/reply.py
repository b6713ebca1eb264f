"""A reply as it stands so far, gathered from its events."""

from __future__ import annotations

from dataclasses import dataclass, field

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


@dataclass(slots=True)
class ToolCall:
    """One call. ``arguments`` is the text the model wrote, meant to be a JSON object.

    ``was_object``: upstream sent the object itself; what goes out has to be its text. ``odd``: a
    client that put its pieces together might get another call than this one. ``again``: the name
    in a piece that came when it was whole, without an id: arguments that follow are another call's.
    """

    id: str
    name: str
    arguments: str
    was_object: bool = False
    odd: bool = False
    again: str = ""

    def ends_before(self, delta: ToolCallDelta) -> bool:
        """Whether a piece with this call's index begins another one.

        Some servers leave the index out, or give all calls the same; LiteLLM makes it 0 for each.
        """
        name = delta.name or self.again
        if not name or not self.name:
            return False
        if delta.id and self.id:
            return delta.id != self.id
        more, own = delta.arguments.strip(), self.arguments.strip()
        if name != self.name:
            return not own or is_object(own)
        # The very same again is the same call, sent twice.
        return bool(more) and more != own and is_object(own)

    def add(self, delta: ToolCallDelta) -> None:
        """Take in a further piece."""
        # Many clients join names and ids as they join the arguments.
        again = (self.id and delta.id) or (self.name and delta.name)
        self.odd = self.odd or delta.odd or bool(again)
        if delta.name and not delta.id and is_object(self.arguments.strip()):
            self.again = delta.name
        self.id = self.id or delta.id
        self.name = self.name or delta.name
        self.arguments += delta.arguments
        self.was_object = self.was_object or delta.was_object


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
        self.finished_at = 0  # pieces that the reply had by then

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
        name = delta.name or (call.again if call is not None else "")
        # Clients put calls in a row by their index.
        odd = delta.odd or call is not None or delta.index != len(self.tool_calls)
        call = ToolCall(delta.id, name, delta.arguments, delta.was_object, odd)
        self._calls[delta.index] = call
        self.tool_calls.append(call)

    def add_reasoning(self, text: str) -> None:
        self._reasoning.append(text)


@dataclass(slots=True)
class Reply:
    """All choices of one attempt. ``mended`` holds the choices that stages changed.

    ``cut``: it was ended by us, so its usage never came. ``generated``: UTF-8 bytes that the model
    wrote, noted before stages take any of them out; ``pieces``: in how many they came, ``counted``
    of which before the usage that is known. ``flowed``: characters of the (only) choice's text that
    the client has.
    """

    choices: dict[int, ChoiceReply] = field(default_factory=dict)
    usage: Usage | None = None
    error: UpstreamErrorEvent | None = None
    mended: set[int] = field(default_factory=set)
    finished: bool = False  # every choice seen so far has its finish_reason
    cut: bool = False
    generated: int = 0
    pieces: int = 0
    counted: int = 0
    flowed: int = 0
    _unfinished: set[int] = field(default_factory=set)

    def written(self) -> int:
        """UTF-8 bytes that the model wrote: more than there are left, once it was mended."""
        size = 0
        for choice in self.choices.values():
            calls = "".join([call.name + call.arguments for call in choice.tool_calls])
            text = choice.text + choice.reasoning + choice.refusal + calls
            size += len(text.encode("utf-8", "surrogatepass"))
        return max(size, self.generated)

    @property
    def has_calls(self) -> bool:
        return any(choice.tool_calls for choice in self.choices.values())

    def choice(self, index: int) -> ChoiceReply:
        found = self.choices.get(index)
        if found is None:
            found = self.choices[index] = ChoiceReply()
            self._unfinished.add(index)
            self.finished = False
        return found

    def _finish(self, event: Finish) -> None:
        """Take in a finish. A choice has one, at its end: one that finishes again is written anew.

        Where nothing has come since, the first reason stays: some servers say `stop` behind
        `tool_calls`.
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
            self.choice(event.choice).add_call(event)
            self.pieces += 1
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


def is_object(arguments: str) -> bool:
    """Whether the arguments of a call are what servers take in a history: one JSON object."""
    try:
        return isinstance(orjson.loads(arguments), dict)
    except orjson.JSONDecodeError:
        return False
