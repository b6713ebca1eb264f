"""The only place that holds: what of a reply may go out now, and what waits for the verdict.

Order is kept: once something is held, everything after it waits too.

- Chunks that commit nothing (a role, empty deltas, comments) wait for the first that does, so that
  a failure before it stays invisible.
- Text and reasoning flow. Text that may be the beginning of a tool call written as text waits until
  it is one or is not; a ``TextHold`` knows.
- From the first piece of a tool call or a finish on, the rest of the reply is held until it is
  judged.
- With ``hold_whole`` everything is held.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import InitVar, dataclass, field
from typing import Protocol

from ..wire.chunks import Chunk, split_text
from ..wire.events import OtherDelta, ReasoningDelta, RefusalDelta, TextDelta, Usage

_FLOWING = (TextDelta, ReasoningDelta, RefusalDelta, OtherDelta)


class TextHold(Protocol):
    """Says of a text that comes piece by piece how much of it may flow."""

    def feed(self, delta: str) -> str:
        """The part of what was held back and ``delta``, from its beginning, that may flow now."""
        ...


@dataclass(slots=True, kw_only=True, eq=False)
class Gate:
    """Holds and releases the chunks of one attempt."""

    hold_whole: InitVar[bool] = False
    text_hold: TextHold | None = None
    report: Callable[[Exception], None] | None = None  # a fault of it, after which the rest is held
    flowed: int = 0  # characters of the (only) choice's text that were released while it came
    _held: list[Chunk] = field(default_factory=list)
    _closed: bool = field(default=False, init=False)
    _committed: bool = False
    _allowed: int = 0  # characters of held text that may flow

    def __post_init__(self, hold_whole: bool) -> None:
        self._closed = hold_whole

    def push(self, chunk: Chunk) -> list[Chunk]:
        """Take a chunk; the chunks that may go out now, in order."""
        held = self._held
        held.append(chunk)
        if self._closed:
            return []
        flows = False
        text = 0
        for event in chunk.events:
            if not isinstance(event, _FLOWING):
                if isinstance(event, Usage):  # some servers count along in every chunk
                    continue
                self._closed = True  # a call, a finish, an error
                return []
            flows = True
            if isinstance(event, TextDelta):
                text += len(event.text)
                if self.text_hold is None:
                    self._allowed += len(event.text)
                    continue
                try:
                    self._allowed += len(self.text_hold.feed(event.text))
                except Exception as error:
                    self._closed = True
                    if self.report is not None:
                        self.report(error)
                    return []
        if not flows and not self._committed and _is_empty(chunk):
            return []
        if len(held) == 1 and text <= self._allowed:  # nearly every chunk of a stream
            self._allowed -= text
            self.flowed += text
            self._committed = True
            self._held = []
            return held
        return self._flow()

    def hold(self, chunk: Chunk) -> None:
        """Take a chunk, and hold it and all that follow until they are released."""
        self._closed = True
        self._held.append(chunk)

    def release(self) -> list[Chunk]:
        """All that is held: the reply has been accepted."""
        held, self._held = self._held, []
        return held

    def _flow(self) -> list[Chunk]:
        """Release from the front as far as text may flow, and not just what commits nothing."""
        held = self._held
        upto = position = 0
        for position, chunk in enumerate(held):
            text = sum(len(e.text) for e in chunk.events if isinstance(e, TextDelta))
            if text > self._allowed:
                break
            self._allowed -= text
            self.flowed += text
            if self._committed or not _is_empty(chunk):
                upto = position + 1
        else:
            position = len(held)
        # A chunk that may begin a call waits as it is for the next one, which mostly settles it: so
        # it goes out as the bytes that came. If it still waits then, what may flow of it does.
        if position < len(held) - 1 and self._allowed:
            head, tail = split_text(held[position], self._allowed)
            self.flowed += self._allowed
            self._allowed = 0
            held[position : position + 1] = [head, tail]
            upto = position + 1
        released, self._held = held[:upto], held[upto:]
        self._committed = self._committed or bool(released)
        return released


def _is_empty(chunk: Chunk) -> bool:
    """Whether a chunk has nothing a client would show or act on."""
    if any(not isinstance(event, Usage) for event in chunk.events):
        return False
    payload = chunk.payload
    choices = payload.get("choices") if payload else None
    for choice in choices if isinstance(choices, list) else ():
        delta = choice.get("delta") if isinstance(choice, dict) else None
        if isinstance(delta, dict) and any(v for k, v in delta.items() if k != "role"):
            return False
    return True
