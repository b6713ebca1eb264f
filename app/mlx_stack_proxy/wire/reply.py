"""The one accumulator: a reply as received so far, from the deltas of its stream."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final

from .call import Call, CallPiece
from .delta import (
    CALL,
    FINISH,
    OTHER,
    REASONING,
    TEXT,
    ChoiceDelta,
    Delta,
    Usage,
    usage_of,
)
from .field_forms import REASONING_FIELDS
from .growing import GrowingText, utf8_size

MAX_CALLS: Final = 128  # per choice; OpenAI allows as many tools in a request


@dataclass(slots=True, eq=False)
class ChoiceReply:
    """One choice of a reply. Stages may change ``tool_calls`` and ``text`` in ``mend()``."""

    written: GrowingText = field(default_factory=GrowingText)  # the text
    thought: GrowingText = field(default_factory=GrowingText)  # the reasoning
    thought_fields: list[str] = field(default_factory=list)  # the names of the reasoning's fields
    refused: GrowingText = field(default_factory=GrowingText)  # the text of a refusal
    others: int = 0  # pieces of calls and of a refusal
    has_other: bool = False  # audio or images
    tool_calls: list[Call] = field(default_factory=list)
    finish_reason: str | None = None
    finished_at: int = 0  # the reply's pieces when this choice finished
    _calls: dict[int, Call] = field(default_factory=dict)  # the newest call at each index

    @property
    def text(self) -> str:
        return self.written.text()

    @text.setter
    def text(self, value: str) -> None:
        self.written = GrowingText(value)

    @property
    def reasoning(self) -> str:
        return self.thought.text()

    @property
    def refusal(self) -> str:
        return self.refused.text()

    def add_call(self, piece: CallPiece) -> Call:
        """Add a piece of a call; return the call that it belongs to."""
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
        # Clients order calls by index, so an index out of order is odd.
        odd = call is not None or piece.index != len(self.tool_calls)
        call = Call(name, piece.function.arguments, piece.id, odd=odd)
        call.note_odd(piece)
        self._calls[piece.index] = call
        self.tool_calls.append(call)
        return call


LONG: Final = 8_000  # characters of a reply


@dataclass(slots=True)
class Reply:
    """All choices of one attempt."""

    choices: dict[int, ChoiceReply] = field(default_factory=dict)
    usage: Usage | None = None
    usage_fields: dict[str, Any] | None = None  # as the client gets it
    mended: set[int] = field(default_factory=set)  # choices that must be rewritten
    finished: bool = False  # every choice so far has a finish_reason
    overfull: bool = False  # a choice has more than MAX_CALLS calls
    cut: bool = False  # we ended the call, so no usage arrived
    whole: bool = False  # received as one object, not as a stream
    generated: int = 0  # UTF-8 bytes that the model wrote, before stages removed any
    pieces: int = 0  # pieces of text, reasoning, calls and other content so far
    counted: int = 0  # `pieces` when `usage` arrived
    # Characters of the (only) choice that the client has: text, reasoning and refusal.
    flowed: int = 0
    thoughts_out: int = 0
    refusal_out: int = 0
    _unfinished: set[int] = field(default_factory=set)

    def written(self) -> int:
        """UTF-8 bytes that the model wrote, including those that stages removed."""
        size = 0
        for choice in self.choices.values():
            size += choice.written.bytes + choice.thought.bytes + choice.refused.bytes
            size += sum([utf8_size(call.name) + call.written.bytes for call in choice.tool_calls])
        return max(size, self.generated)

    @property
    def is_long(self) -> bool:
        """Whether judging the texts and arguments may take 10 ms, because they are so long."""
        size = 0
        for choice in self.choices.values():
            size += choice.written.size + choice.thought.size
            size += sum([call.written.size for call in choice.tool_calls])
        return size > LONG

    def choice(self, index: int) -> ChoiceReply:
        choice = self.choices.get(index)
        if choice is None:
            choice = self.choices[index] = ChoiceReply()
            self._unfinished.add(index)
            self.finished = False
        return choice

    def release(self, delta: Delta) -> None:
        """Record that the client has a frame's content."""
        for piece in delta.choices:
            said = piece.delta
            if said.content:
                self.flowed += len(said.content)
            if delta.kinds & ~TEXT:
                self.thoughts_out += len(said.thought)
                self.refusal_out += len(said.refusal or "")

    def take(self, delta: Delta) -> None:
        """Add a frame's content, and set the delta's kinds."""
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
                delta.text += text
                count = len(delta.texts) or 1
                choice.written.add(text, count)
                self.pieces += count
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

    def _take_rest(self, delta: Delta, piece: ChoiceDelta) -> int:
        """Add a refusal, calls and a finish; return their kinds."""
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
        """Finish the choices that lack a finish_reason, as their content implies; rewrite them."""
        for index in list(self._unfinished):
            choice = self.choices[index]
            self._finish(index, choice, "tool_calls" if choice.tool_calls else "stop")
            self.mended.add(index)

    def _finish(self, index: int, choice: ChoiceReply, reason: str) -> None:
        """Record a finish. A choice that finishes twice is rewritten, with one finish.

        The first reason stays if no content came in between: some servers send `tool_calls`, then
        `stop`.
        """
        if choice.finish_reason is not None:
            self.mended.add(index)
        if choice.finish_reason is None or self.pieces > choice.finished_at:
            choice.finish_reason = reason
        choice.finished_at = self.pieces
        self._unfinished.discard(index)
        self.finished = not self._unfinished
