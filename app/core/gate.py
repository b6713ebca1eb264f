"""The only place that holds: what of a reply may go out now, and what waits for the verdict.

Order is kept: once something is held, everything after it waits too.

- Chunks that commit nothing (a role, empty deltas, comments) wait for the first that does, so that
  a failure before it stays invisible.
- Text and reasoning flow. From the first piece of a tool call or a finish on, the rest of the reply
  is held until it is judged.
- With ``hold_whole`` everything is held. With ``hold_seconds``, text waits that long.
"""

from __future__ import annotations

from .chunks import Chunk
from .events import Finish, ReasoningDelta, RefusalDelta, TextDelta

_FLOWING = (TextDelta, ReasoningDelta, RefusalDelta)


class Gate:
    """Holds and releases the chunks of one attempt. Times are in seconds on the given clock."""

    __slots__ = ("_closed", "_held", "_hold_seconds", "_text_since", "committed_text")

    def __init__(self, *, hold_whole: bool = False, hold_seconds: float = 0.0) -> None:
        self._held: list[Chunk] = []
        self._closed = hold_whole
        self._hold_seconds = hold_seconds
        self._text_since: float | None = None
        self.committed_text = False

    def push(self, chunk: Chunk, now: float) -> list[Chunk]:
        """Take a chunk; the chunks that may go out now, in order."""
        held = self._held
        if self._closed:
            held.append(chunk)
            return []
        flows = False
        for event in chunk.events:
            if isinstance(event, _FLOWING):
                flows = True
            else:  # a call, a finish, an error, usage: the verdict is near
                self._closed = True
                held.append(chunk)
                return []
        if not flows and _is_empty(chunk):
            if not self.committed_text:
                held.append(chunk)
                return []
        elif self._hold_seconds and self._waits(now):
            held.append(chunk)
            return []
        return self._let_go(chunk)

    def tick(self, now: float) -> list[Chunk]:
        """What ``hold_seconds`` held long enough."""
        if self._closed or self._text_since is None or self._waits(now):
            return []
        held, self._held = self._held, []
        self.committed_text = True
        return held

    def next_release(self) -> float | None:
        """When :meth:`tick` will have something, if time alone can release it."""
        if self._closed or self._text_since is None or self.committed_text:
            return None
        return self._text_since + self._hold_seconds

    def release(self) -> list[Chunk]:
        """All that is held: the reply has been accepted."""
        held, self._held = self._held, []
        return held

    @property
    def held(self) -> list[Chunk]:
        return self._held

    def _waits(self, now: float) -> bool:
        if self._text_since is None:
            self._text_since = now
        return now < self._text_since + self._hold_seconds

    def _let_go(self, chunk: Chunk) -> list[Chunk]:
        self.committed_text = True
        if self._held:
            released, self._held = [*self._held, chunk], []
            return released
        return [chunk]


def _is_empty(chunk: Chunk) -> bool:
    """Whether a chunk without events has nothing a client would show or act on."""
    payload = chunk.payload
    choices = payload.get("choices") if payload else None
    for choice in choices if isinstance(choices, list) else ():
        delta = choice.get("delta") if isinstance(choice, dict) else None
        if isinstance(delta, dict) and any(v for k, v in delta.items() if k != "role"):
            return False
    return True


def is_final(chunk: Chunk) -> bool:
    """Whether a chunk ends a choice."""
    return any(isinstance(event, Finish) for event in chunk.events)
