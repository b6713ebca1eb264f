"""Reads the frames of one stream, each only as far as it is new.

Nearly all chunks of a stream are the same bytes but for their text: id, model, time and choice stay
as they were. Where a chunk's bytes before and after its text are those of one that was parsed, it
means the same with another text, and only that is read. What follows from this is exact: the same
bytes around one JSON string parse to the same object around it.
"""

from __future__ import annotations

from collections.abc import Sequence

import orjson

from . import sse, surrogates
from .chunks import Chunk, read_frame
from .completion import adds_text_alone
from .events import TextDelta

# A stream whose chunks differ in more than their text is not asked for a pattern for ever.
_MAX_TRIES = 8


class ChunkReader:
    """One stream's. ``text_alone``: chunks that are unread add nothing else to a whole reply.

    ``choice``: whose text they bring.
    """

    __slots__ = (
        "_after",
        "_around",
        "_before",
        "_close",
        "_halves",
        "_open",
        "_tries",
        "choice",
        "text_alone",
    )

    def __init__(self) -> None:
        self._halves: surrogates.Halves = {}
        self._before = b""  # the bytes up to and with the quote that opens the text
        self._after = b""  # and from the one that closes it
        self._around = 0  # how many both are
        self._open = self._close = 0  # where the text stands with its quotes
        self.choice = 0
        self._tries = 0
        self.text_alone = False

    def read(self, frame: sse.Frame) -> Chunk:
        """The chunk in a frame. Raises :class:`MalformedChunk`."""
        raw = frame.raw
        if self.is_like(raw):
            text = self._text(raw)
            if text is None:
                return read_frame(frame, self._halves)  # more than one string, or half of one
            return Chunk(raw, None, [TextDelta(self.choice, text)], unread=True)
        chunk = read_frame(frame, self._halves)
        if self._tries < _MAX_TRIES and len(chunk.events) == 1 and chunk.raw is raw:
            event = chunk.events[0]
            if type(event) is TextDelta and raw.startswith(b"data: ") and frame.data == raw[6:-2]:
                self._tries += 1
                self._learn(chunk, event)
        return chunk

    def is_like(self, raw: bytes) -> bool:
        """Whether a chunk's bytes are those of one that was read, but for its text."""
        after = self._after
        if not after or len(raw) <= self._around:
            return False
        return raw.startswith(self._before) and raw.endswith(after)

    def texts(self, frames: Sequence[sse.Frame], start: int, room: int) -> list[str]:
        """What the frames from ``start`` on bring, as far as they bring text alone.

        As many as have surely no more than ``room`` characters in all, which are no more than their
        bytes; none of these texts is empty.
        """
        found: list[str] = []
        for at in range(start, len(frames)):
            raw = frames[at].raw
            if len(raw) - self._around > room or not self.is_like(raw):
                break
            if (text := self._text(raw)) is None:
                break
            room -= len(text)
            found.append(text)
        return found

    def _text(self, raw: bytes) -> str | None:
        """The text in a chunk like one that was read; None if there is more than one string."""
        try:
            text: str = orjson.loads(raw[self._open : self._close])
        except orjson.JSONDecodeError:
            return None
        return text

    def _learn(self, chunk: Chunk, event: TextDelta) -> None:
        """Find the text in a chunk that says nothing else.

        It came from a key ``content``. Where that stands in the chunk once, and nothing outside the
        text is escaped, so that it is spelt nowhere else, what follows it is the text.
        """
        raw = chunk.raw
        if raw.count(b'"content"') != 1:
            return
        text = orjson.dumps(event.text)
        for key in (b'"content":', b'"content": '):
            before, found, after = raw.partition(key + text)
            if found:
                break
        else:
            return
        if b"\\" not in before and b"\\" not in after:
            self._before, self._after = before + key + b'"', b'"' + after
            self._around = len(self._before) + len(self._after)
            self._open, self._close = len(self._before) - 1, 1 - len(self._after)
            self.choice = event.choice
            self.text_alone = chunk.payload is not None and adds_text_alone(chunk.payload)
