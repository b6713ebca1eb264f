"""The gate: decides which chunks of a reply go out now, and holds the others for the verdict.

The gate keeps the order: once it holds a chunk, it holds every later one too.

- Chunks without content (a role, empty deltas, comments) wait for the first chunk that has some, so
  that the client sees nothing of a failure before it.
- Text and reasoning flow. Text that may be the beginning of a tool call written as text waits until
  a ``TextHold`` knows whether it is one.
- From the first piece of a tool call, a finish or an error on, the gate holds the rest of the reply
  until the reply is accepted.
- With ``hold_whole`` the gate holds everything.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import InitVar, dataclass, field
from typing import Protocol

from ..wire.chunks import Chunk, split_text
from ..wire.events import OtherDelta, ReasoningDelta, RefusalDelta, TextDelta, Usage

MAX_HELD = 256 * 1024 * 1024  # bytes; a reply of which more would be held is broken
_OF_OBJECTS = 1_500  # bytes that a held chunk's objects take besides its frame, roughly
_MOST_EMPTY = 256  # chunks held before further ones without content are dropped
_FLOWING = (TextDelta, ReasoningDelta, RefusalDelta, OtherDelta)


class TextHold(Protocol):
    """Decides, for a text that comes piece by piece, how much of the text may flow."""

    def feed(self, delta: str) -> str:
        """Add ``delta`` to the text held back; return the beginning of both that may flow now."""
        ...


@dataclass(slots=True, kw_only=True, eq=False)
class Gate:
    """Holds and releases the chunks of one attempt."""

    hold_whole: InitVar[bool] = False
    text_hold: TextHold | None = None  # None: all text may flow
    report: Callable[[Exception], None] | None = None  # told if the text hold raises
    flowed: int = 0  # characters of the (only) choice's text released while the reply came
    _held: list[Chunk] = field(default_factory=list)
    _held_bytes: int = 0
    _closed: bool = field(default=False, init=False)  # everything that comes is held
    _committed: bool = False  # a chunk has been released
    _allowed: int = 0  # characters of text in `_held` that may flow

    def __post_init__(self, hold_whole: bool) -> None:
        self._closed = hold_whole

    def push(self, chunk: Chunk) -> list[Chunk]:
        """Take the next chunk; return the chunks that may go out now, in order.

        From the first chunk with a call, a finish or an error on, nothing goes out.
        """
        held = self._held
        held.append(chunk)
        if self._closed:
            return self._keep(chunk)
        has_content = False
        chars = 0
        for event in chunk.events:
            if not isinstance(event, _FLOWING):
                if isinstance(event, Usage):  # some servers put a usage into every chunk
                    continue
                self._closed = True  # a call, a finish, an error
                return self._keep(chunk)
            has_content = True
            if isinstance(event, TextDelta):
                chars += len(event.text)
                if self.text_hold is None:
                    self._allowed += len(event.text)
                    continue
                try:
                    self._allowed += len(self.text_hold.feed(event.text))
                except Exception as error:
                    self._closed = True
                    if self.report is not None:
                        self.report(error)
                    return self._keep(chunk)
        if not has_content and _is_empty(chunk):
            if len(held) > _MOST_EMPTY:
                held.pop()
                return []
            if not self._committed:
                return self._keep(chunk)  # it waits for the first chunk with content
        # Nearly every chunk of a stream: no other is held, and all its text may flow.
        if len(held) == 1 and chars <= self._allowed:
            self._allowed -= chars
            self.flowed += chars
            self._committed = True
            self._held = []
            return held
        self._keep(chunk)
        return self._release_flowing()

    @property
    def overfull(self) -> bool:
        """Whether more is held than any reply should need."""
        return self._held_bytes > MAX_HELD

    def _keep(self, chunk: Chunk) -> list[Chunk]:
        self._held_bytes += len(chunk.raw) + _OF_OBJECTS
        return []

    def hold(self, chunk: Chunk) -> None:
        """Hold a chunk, and all later ones, until :meth:`release`."""
        self._closed = True
        self._held.append(chunk)

    def release(self) -> list[Chunk]:
        """Return all held chunks, because the reply has been accepted."""
        held, self._held = self._held, []
        return held

    def _release_flowing(self) -> list[Chunk]:
        """Release held chunks from the front as far as text may flow, to the last with content."""
        held = self._held
        upto = position = 0
        for position, chunk in enumerate(held):
            chars = sum(len(e.text) for e in chunk.events if isinstance(e, TextDelta))
            if chars > self._allowed:
                break
            self._allowed -= chars
            self.flowed += chars
            if self._committed or not _is_empty(chunk):
                upto = position + 1
        else:
            position = len(held)
        # A newest chunk of which only a part may flow waits whole for the next chunk, which mostly
        # frees the rest; so it goes out as the bytes that came. If the next chunk doesn't, the
        # waiting one is split and its first part released.
        if position < len(held) - 1 and self._allowed:
            head, tail = split_text(held[position], self._allowed)
            self.flowed += self._allowed
            self._allowed = 0
            held[position : position + 1] = [head, tail]
            upto = position + 1
        if not upto:  # to copy the list with each chunk would be quadratic
            return []
        released, self._held = held[:upto], held[upto:]
        self._held_bytes -= sum(len(chunk.raw) + _OF_OBJECTS for chunk in released)
        self._committed = self._committed or bool(released)
        return released


def _is_empty(chunk: Chunk) -> bool:
    """Whether a chunk has nothing that a client would show or act on."""
    if any(not isinstance(event, Usage) for event in chunk.events):
        return False
    payload = chunk.payload
    choices = payload.get("choices") if payload else None
    for choice in choices if isinstance(choices, list) else ():
        delta = choice.get("delta") if isinstance(choice, dict) else None
        if isinstance(delta, dict) and any(v for k, v in delta.items() if k != "role"):
            return False
    return True
