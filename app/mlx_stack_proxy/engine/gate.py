"""The gate: decides which frames of a reply go out now and which wait for the verdict.

The gate keeps the order: once it holds a frame, it holds every later one.

- Frames without content (a role, a usage) wait for the first frame with content, so that a failure
  before it stays invisible to the client.
- Text and reasoning flow. Text that may begin a tool call written as text waits until a
  ``TextHold`` has decided whether it does.
- The first piece of a tool call, a finish or an error closes the gate: the rest of the reply is
  held until the reply is accepted.
- With ``hold_whole`` the gate is closed from the beginning.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from itertools import islice
from typing import Final, Protocol

from ..wire.delta import CALL, FINISH, TEXT, Delta, split_text

MAX_HELD: Final = 256 * 1024 * 1024  # bytes; a reply that exceeds this is broken
_MAX_EMPTY: Final = 256  # frames held before further ones without content are dropped
_CLOSING: Final = CALL | FINISH
Split = Callable[[Delta, int], tuple[Delta, Delta]]


class TextHold(Protocol):
    """Decides how much of a growing text may flow."""

    def feed(self, delta: str) -> str:
        """Append ``delta`` to the held text; return the beginning that may flow now."""
        ...


class Gate:
    """Sorts the frames of one attempt. ``split``: splits a frame's text."""

    def __init__(
        self,
        *,
        hold_whole: bool = False,
        text_holds: Iterable[TextHold] = (),  # each one gets what the one before releases
        report: Callable[[Exception], None] | None = None,  # called if a text hold raises
        split: Split = split_text,
    ) -> None:
        self.closed = hold_whole
        self.text_holds = list(text_holds)
        self.waiting_bytes = 0  # of the frames that wait for more text
        self._report = report
        self._split = split
        self.waiting: deque[Delta] = deque()  # frames that wait for more text, or for any content
        self._leading = 0  # how many leading frames of these are without content
        self._committed = False  # a frame has been released
        self._allowed = 0  # characters of the waiting text that may flow

    def push(self, delta: Delta) -> Sequence[Delta]:
        """Add the next frame; return those that may go out now, in order.

        Once the gate is ``closed``, it accepts none: the caller holds the frame, after those that
        :meth:`close` returns.
        """
        kinds = delta.kinds
        if kinds & _CLOSING or delta.error is not None:
            self.closed = True
            return ()
        chars = 0
        if kinds & TEXT:
            text, chars = delta.text, len(delta.text)
            try:
                for hold in self.text_holds:
                    text = hold.feed(text)
            except Exception as error:
                self.closed = True
                if self._report is not None:
                    self._report(error)
                return ()
            self._allowed += len(text)
        if not kinds and _is_empty(delta) and not self._committed:
            if len(self.waiting) < _MAX_EMPTY:
                self._leading += self._leading == len(self.waiting)
                self._wait(delta)
            return ()
        # Nearly every frame of a stream: no other one waits, and all its text may flow.
        if not self.waiting and chars <= self._allowed:
            self._allowed -= chars
            self._committed = True
            return (delta,)
        self._wait(delta)
        return self._release_flowing()

    def close(self) -> Iterable[Delta]:
        """Close the gate; return the waiting frames, which are held with all that follow."""
        self.closed = True
        waiting, self.waiting = self.waiting, deque()
        return waiting

    def _wait(self, delta: Delta) -> None:
        self.waiting.append(delta)
        self.waiting_bytes += len(delta.raw)

    def _release_flowing(self) -> list[Delta]:
        """Release waiting frames whose text may flow, up to the last one with content."""
        waiting = self.waiting
        upto = 0
        first = position = self._leading  # frames without content go out only together with content
        for position, delta in enumerate(islice(waiting, first, None), first):
            chars = len(delta.text)
            if chars > self._allowed:
                break
            self._allowed -= chars
            if self._committed or not _is_empty(delta):
                upto = position + 1
        else:
            position = len(waiting)
        # If only a part of the newest frame may flow, all of it waits for the next frame, which
        # mostly frees the rest, so that its bytes can go out unchanged. If the next frame doesn't,
        # the waiting one is split and its first part released.
        released = []
        splits = position < len(waiting) - 1 and self._allowed
        for _ in range(position if splits else upto):
            released.append(self._next())
        if splits:
            head, tail = self._split(self._next(), self._allowed)
            self._allowed = 0
            released.append(head)
            waiting.appendleft(tail)
            self.waiting_bytes += len(tail.raw)
        if released:
            self._committed, self._leading = True, 0
        return released

    def _next(self) -> Delta:
        delta = self.waiting.popleft()
        self.waiting_bytes -= len(delta.raw)
        return delta


def _is_empty(delta: Delta) -> bool:
    """Whether a frame has nothing that a client would display or act on."""
    if delta.kinds or delta.error is not None:
        return False
    choices = delta.more.get("choices", ()) if delta.more is not None else ()
    return not any(any(choice["delta"].values()) for choice in choices)
