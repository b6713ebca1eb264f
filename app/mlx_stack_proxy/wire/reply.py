"""The one accumulator: a reply as it stands so far, from the deltas of its stream."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final

import orjson

from .delta import (
    CALL,
    FINISH,
    OTHER,
    REASONING,
    TEXT,
    CallPiece,
    ChoiceDelta,
    Counts,
    Delta,
    OddPiece,
    UpstreamErrorEvent,
    Usage,
    usage_of,
)
from .field_forms import REASONING_FIELDS
from .json_text import JsonEnd

MAX_CALLS: Final = 128  # of one choice; OpenAI allows as many tools in a request


class Growing:
    """A text that comes in pieces, which are joined when the text is asked for: linear in all.

    Whoever watches it keeps an offset, not a copy.
    """

    __slots__ = ("_pieces", "_text", "bytes", "count", "size")

    def __init__(self, text: str = "") -> None:
        self._text = text
        self._pieces: list[str] = []
        self.size = len(text)  # characters
        self.bytes = utf8_size(text)
        self.count = 0  # pieces that came

    def add(self, piece: str) -> None:
        self._pieces.append(piece)
        size = len(piece)
        self.size += size
        self.bytes += size if piece.isascii() else utf8_size(piece)
        self.count += 1

    def text(self) -> str:
        if self._pieces:
            text, self._text = self._text, ""
            text += "".join(self._pieces)  # no copy: Python extends a string that nothing holds
            self._text = text
            self._pieces.clear()
        return self._text


class ToolCall:
    """One tool call, put together from its pieces."""

    __slots__ = ("_json", "_whole", "again", "id", "more", "name", "odd", "was_object", "written")

    def __init__(
        self, id: str, name: str, arguments: str, was_object: bool = False, odd: bool = False
    ) -> None:
        self.id = id
        self.name = name
        self.written = Growing(arguments)
        self.more: list[dict[str, Any]] = []  # further fields of its pieces
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
        return self.written.text()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ToolCall) and self._values() == other._values()

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"ToolCall{self._values()}"

    def _values(self) -> tuple[str | bool, ...]:
        return self.id, self.name, self.arguments, self.was_object, self.odd, self.again

    def ends_before(self, piece: CallPiece) -> bool:
        """Whether a piece with this call's index begins another call.

        Some servers leave the index out, or give all calls the same; LiteLLM makes it 0 for each.
        """
        function = piece.function
        name = function.name or self.again
        if not name or not self.name:
            return False
        if piece.id and self.id:
            return piece.id != self.id
        if name != self.name:
            return self._is_object() or self._end().blank
        # The server sent the same call twice if name and arguments are equal.
        new_arguments = function.arguments.strip()
        if not new_arguments or not self._is_object():
            return False
        return new_arguments != self.arguments.strip()

    def goes_on_with(self, piece: CallPiece) -> bool:
        """Whether a piece with a new index is this call's: it has arguments, this call only a name.

        SGLang makes two entries of one call so.
        """
        bare = not piece.function.name and not piece.id and bool(piece.function.arguments.strip())
        return bare and bool(self.name) and self._end().blank

    def add(self, piece: CallPiece) -> None:
        """Take in a further piece."""
        name, arguments = piece.function.name, piece.function.arguments
        # A repeated id or name is odd: many clients append it, as they append arguments.
        if name or piece.id:
            self.odd = self.odd or bool((self.id and piece.id) or (self.name and name))
            if name and not piece.id and self._is_object():
                self.again = name
            self.id = self.id or piece.id
            self.name = self.name or name
        self.written.add(arguments)
        if self._json is not None:
            self._json.add(arguments)
        if type(piece) is not CallPiece:
            self._note_odd(piece)

    def _note_odd(self, piece: CallPiece) -> None:
        """Note how a piece that was not in form was odd."""
        if isinstance(piece, OddPiece):
            self.odd = self.odd or piece.odd
            self.was_object = self.was_object or piece.was_object
            if piece.more is not None:
                self.more.append(piece.more)

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
    """One alternative of a reply. Stages may change ``tool_calls`` and ``text`` while they mend."""

    __slots__ = (
        "_calls",
        "finish_reason",
        "finished_at",
        "has_other",
        "others",
        "refused",
        "thought",
        "thought_fields",
        "tool_calls",
        "written",
    )

    def __init__(self) -> None:
        self.written = Growing()  # the text
        self.thought = Growing()  # the reasoning
        self.thought_fields: list[str] = []  # the names under which it began to come
        self.others = 0  # pieces of calls and of a refusal
        self._calls: dict[int, ToolCall] = {}
        self.refused = Growing()  # the text of a refusal
        self.has_other = False  # audio or images
        self.tool_calls: list[ToolCall] = []
        self.finish_reason: str | None = None
        self.finished_at = 0  # pieces that the reply had when this choice finished

    @property
    def text(self) -> str:
        return self.written.text()

    @text.setter
    def text(self, value: str) -> None:
        self.written = Growing(value)

    @property
    def reasoning(self) -> str:
        return self.thought.text()

    @property
    def refusal(self) -> str:
        return self.refused.text()

    def add_call(self, piece: CallPiece) -> ToolCall:
        """Take in a piece of a call; return the call that it belongs to."""
        call = self._calls.get(piece.index)
        if call is not None and not call.ends_before(piece):
            call.add(piece)
            return call
        if call is None and self.tool_calls and self.tool_calls[-1].goes_on_with(piece):
            call = self._calls[piece.index] = self.tool_calls[-1]
            call.add(piece)
            call.odd = True
            return call
        name = piece.function.name or (call.again if call is not None else "")
        # Clients order calls by their index, so an index out of order is odd.
        odd = call is not None or piece.index != len(self.tool_calls)
        call = ToolCall(piece.id, name, piece.function.arguments, odd=odd)
        call._note_odd(piece)
        self._calls[piece.index] = call
        self.tool_calls.append(call)
        return call


LONG: Final = 8_000  # characters of a reply


@dataclass(slots=True)
class Reply:
    """All choices of one attempt."""

    choices: dict[int, ChoiceReply] = field(default_factory=dict)
    usage: Usage | None = None
    usage_fields: Counts | dict[str, Any] | None = None  # as the client gets it
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
            size += choice.written.bytes + choice.thought.bytes + choice.refused.bytes
            size += sum([utf8_size(call.name) + call.written.bytes for call in choice.tool_calls])
        return max(size, self.generated)

    @property
    def is_long(self) -> bool:
        """Whether texts, thoughts and arguments are so long that to judge them may take 10 ms."""
        size = 0
        for choice in self.choices.values():
            size += choice.written.size + choice.thought.size
            size += sum([call.written.size for call in choice.tool_calls])
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

    def take(self, delta: Delta) -> None:
        """Take in what a frame brings, and note its kinds in the delta."""
        kinds = 0
        for piece in delta.choices:
            said, choice = piece.delta, self.choices.get(piece.index)
            if thought := said.reasoning_content or said.reasoning or said.thinking:
                choice = choice or self.choice(piece.index)
                choice.thought.add(thought)
                for name in REASONING_FIELDS if choice.thought.count == 1 else ():
                    if getattr(said, name):
                        choice.thought_fields.append(name)
                self.pieces += 1
                kinds |= REASONING
            if text := said.content:
                choice = choice or self.choice(piece.index)
                choice.written.add(text)
                self.pieces += 1
                kinds |= TEXT
            if said.refusal or said.tool_calls or piece.finish_reason:
                kinds |= self._take_rest(delta, piece)
        for index in delta.other:
            self.choice(index).has_other = True
            self.pieces += 1
            kinds |= OTHER
        delta.kinds = kinds
        if delta.usage is not None:
            self.usage = usage_of(delta.usage)
            self.usage_fields = delta.usage
            self.counted = self.pieces
        if delta.error is not None:
            self.error = delta.error

    def _take_rest(self, delta: Delta, piece: ChoiceDelta) -> int:
        """Take in a refusal, calls and a finish; return their kinds."""
        kinds = 0
        choice, said = self.choice(piece.index), piece.delta
        if said.refusal:
            choice.refused.add(said.refusal)
            choice.others += 1
            self.pieces += 1
            kinds |= OTHER
        if said.tool_calls:
            grown = []
            for part in said.tool_calls:
                if self.overfull:
                    break
                call = choice.add_call(part)
                grown.append((piece.index, call, part.function.arguments))
                self.overfull = len(choice.tool_calls) > MAX_CALLS
            delta.grown = [*delta.grown, *grown] if delta.grown else grown
            choice.others += len(grown)
            self.pieces += len(grown)
            kinds |= CALL
        if piece.finish_reason:
            self._finish(piece.index, choice, piece.finish_reason)
            kinds |= FINISH
        return kinds

    def finish_all(self) -> None:
        """Finish the choices that lack a finish_reason, as their contents say; write them anew."""
        for index in list(self._unfinished):
            choice = self.choices[index]
            self._finish(index, choice, "tool_calls" if choice.tool_calls else "stop")
            self.mended.add(index)

    def _finish(self, index: int, choice: ChoiceReply, reason: str) -> None:
        """Take in a finish. A choice that finishes twice is written anew, with one finish.

        The first reason stays if nothing came in between: some servers send `tool_calls`, then
        `stop`.
        """
        if choice.finish_reason is not None:
            self.mended.add(index)
        if choice.finish_reason is None or self.pieces > choice.finished_at:
            choice.finish_reason = reason
        choice.finished_at = self.pieces
        self._unfinished.discard(index)
        self.finished = not self._unfinished


def utf8_size(text: str) -> int:
    """Return how many bytes a text has in UTF-8; a lone surrogate counts as three."""
    return len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))


def is_object(arguments: str) -> bool:
    """Whether a call's arguments are one JSON object: servers accept nothing else in a history."""
    try:
        return isinstance(orjson.loads(arguments), dict)
    except orjson.JSONDecodeError:
        return False
