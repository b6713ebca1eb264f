"""Reads the frames of one stream, each only as far as it is new.

Nearly all chunks of a stream are the same bytes but for their text: id, model, time and choice stay
as they were. Where a chunk's bytes before and after its text are those of one that was parsed, it
means the same with another text, and only that is read. What follows from this is exact: the same
bytes around one JSON string parse to the same object around it.
"""

from __future__ import annotations

import orjson

from . import sse, surrogates
from .chunks import Chunk, read_frame
from .completion import adds_text_alone
from .events import TextDelta

# A stream whose chunks differ in more than their text is not asked for a pattern for ever.
_MAX_TRIES = 8


class ChunkReader:
    """One stream's. ``text_alone``: chunks that are unread add nothing else to a whole reply."""

    __slots__ = ("_after", "_around", "_before", "_choice", "_halves", "_tries", "text_alone")

    def __init__(self) -> None:
        self._halves: surrogates.Halves = {}
        self._before = b""  # the bytes up to and with the quote that opens the text
        self._after = b""  # and from the one that closes it
        self._around = 0  # how many both are
        self._choice = 0
        self._tries = 0
        self.text_alone = False

    def read(self, frame: sse.Frame) -> Chunk:
        """The chunk in a frame. Raises :class:`MalformedChunk`."""
        raw = frame.raw
        before, after = self._before, self._after
        if after and len(raw) > self._around and raw.startswith(before) and raw.endswith(after):
            try:
                text = orjson.loads(b'"%b"' % raw[len(before) : -len(after)])
            except orjson.JSONDecodeError:
                return read_frame(frame, self._halves)  # more than one string, or half of one
            return Chunk(raw, None, [TextDelta(self._choice, text)], unread=True)
        chunk = read_frame(frame, self._halves)
        if self._tries < _MAX_TRIES and len(chunk.events) == 1 and chunk.raw is raw:
            event = chunk.events[0]
            if type(event) is TextDelta and raw.startswith(b"data: ") and frame.data == raw[6:-2]:
                self._tries += 1
                self._learn(chunk, event)
        return chunk

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
            self._choice = event.choice
            self.text_alone = chunk.payload is not None and adds_text_alone(chunk.payload)
