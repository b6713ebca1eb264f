"""The gate: decides which frames of a reply go out now, and which wait for the verdict.

The gate keeps the order: once it holds a frame, it holds every later one too.

- Frames without content (a role, a usage) wait for the first frame that has some, so that the
  client sees nothing of a failure before it.
- Text and reasoning flow. Text that may be the beginning of a tool call written as text waits until
  a ``TextHold`` knows whether it is one.
- From the first piece of a tool call, a finish or an error on, the gate is closed: the rest of the
  reply is held until the reply is accepted.
- With ``hold_whole`` it is closed from the beginning.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from itertools import islice
from typing import Final, Protocol

from ..wire.delta import CALL, FINISH, TEXT, Delta, split_text

MAX_HELD: Final = 256 * 1024 * 1024  # bytes; a reply of which more would be held is broken
_MOST_EMPTY: Final = 256  # frames held before further ones without content are dropped
_CLOSING: Final = CALL | FINISH
Split = Callable[[Delta, int], tuple[Delta, Delta]]


class TextHold(Protocol):
    """Decides, for a text that comes piece by piece, how much of the text may flow."""

    def feed(self, delta: str) -> str:
        """Add ``delta`` to the text held back; return the beginning of both that may flow now."""
        ...


class Gate:
    """Sorts the frames of one attempt. ``split``: splits a frame's text."""

    def __init__(
        self,
        *,
        hold_whole: bool = False,
        text_holds: Iterable[TextHold] = (),  # what one lets through, the next one gets
        report: Callable[[Exception], None] | None = None,  # called if the text hold raises
        split: Split = split_text,
    ) -> None:
        self.closed = hold_whole
        self.text_holds = list(text_holds)
        self.waiting_bytes = 0  # of the frames that wait for more text
        self._report = report
        self._split = split
        self.waiting: deque[Delta] = deque()  # frames that wait for more text, or for any
        self._leading = 0  # how many of the first waiting frames are without content
        self._committed = False  # a frame has been released
        self._allowed = 0  # characters of the waiting text that may flow

    def push(self, delta: Delta) -> Sequence[Delta]:
        """Take the next frame; return those that may go out now, in order.

        Once the gate is ``closed``, it takes none: the frame, after those that :meth:`close`
        returns, is held.
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
            if len(self.waiting) < _MOST_EMPTY:
                self._leading += self._leading == len(self.waiting)
                self._wait(delta)
            return ()
        # Nearly every frame of a stream: no other waits, and all its text may flow.
        if not self.waiting and chars <= self._allowed:
            self._allowed -= chars
            self._committed = True
            return (delta,)
        self._wait(delta)
        return self._release_flowing()

    def close(self) -> Iterable[Delta]:
        """Close the gate; return the frames that were waiting, to be held with all that follow."""
        self.closed = True
        waiting, self.waiting = self.waiting, deque()
        return waiting

    def _wait(self, delta: Delta) -> None:
        self.waiting.append(delta)
        self.waiting_bytes += len(delta.raw)

    def _release_flowing(self) -> list[Delta]:
        """Release waiting frames as far as their text may flow, to the last one with content."""
        waiting = self.waiting
        upto = 0
        first = position = self._leading  # those before it go out with content alone
        for position, delta in enumerate(islice(waiting, first, None), first):
            chars = len(delta.text)
            if chars > self._allowed:
                break
            self._allowed -= chars
            if self._committed or not _is_empty(delta):
                upto = position + 1
        else:
            position = len(waiting)
        # A newest frame of which only a part may flow waits whole for the next frame, which mostly
        # frees the rest; so it goes out as the bytes that came. If the next frame doesn't, the
        # waiting one is split and its first part released.
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
    """Whether a frame has nothing that a client would show or act on."""
    if delta.kinds or delta.error is not None:
        return False
    choices = delta.more.get("choices", ()) if delta.more is not None else ()
    return not any(any(choice["delta"].values()) for choice in choices)
