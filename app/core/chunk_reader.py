"""Reads the frames of one stream, each only as far as it is new.

Nearly all chunks of a stream are the same bytes but for their text: id, model, time and choice stay
as they were. Where a chunk's bytes before and after its text are those of one that was parsed, it
means the same with another text, and only that is read. What follows from this is exact: the same
bytes around one JSON string parse to the same object around it.

Many texts are read as one JSON array. That is as exact: between two there is a line end, which no
JSON string may hold, so none can reach into the next, and each begins at least one string. Where
the array is of as many strings as there are frames, and of nothing else, each frame's was one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import orjson

from . import sse, surrogates
from .chunks import Chunk, read_frame
from .events import TextDelta

# A stream whose chunks differ in more than their text is not asked for a pattern for ever.
_MAX_TRIES = 8


class ChunkReader:
    """One stream's."""

    __slots__ = ("_after", "_around", "_before", "_choice", "_halves", "_tries")

    def __init__(self) -> None:
        self._halves: surrogates.Halves = {}
        self._before = b""  # the bytes up to and with the quote that opens the text
        self._after = b""  # and from the one that closes it
        self._around = 0  # how many both are
        self._choice = 0
        self._tries = 0

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
                self._learn(raw, event)
        return chunk

    def read_at_once(self, frames: Sequence[sse.Frame]) -> Iterator[Chunk]:
        """The chunks in what came in one read, text after text as one; for who relays no bytes.

        Raises :class:`MalformedChunk` where :meth:`read` would, after those before it.
        """
        alike: list[sse.Frame] = []
        for frame in frames:
            raw, after = frame.raw, self._after
            differs_in_text = (
                after
                and len(raw) > self._around
                and raw.startswith(self._before)
                and raw.endswith(after)
            )
            if differs_in_text:
                alike.append(frame)
                continue
            if alike:
                yield from self._read_alike(alike)
                alike = []
            yield self.read(frame)
        if alike:
            yield from self._read_alike(alike)

    def _read_alike(self, frames: list[sse.Frame]) -> Iterable[Chunk]:
        joined = self._joined(frames) if len(frames) > 1 else None
        return map(self.read, frames) if joined is None else (joined,)

    def _joined(self, frames: list[sse.Frame]) -> Chunk | None:
        """One chunk with all texts; None where one isn't a string, or has half a character."""
        start, end = len(self._before), -len(self._after)
        texts = [frame.raw[start:end] for frame in frames]
        try:
            pieces = orjson.loads(b'["%b"]' % b'",\n"'.join(texts))
            text = "".join(pieces)
        except (orjson.JSONDecodeError, TypeError):
            return None
        if len(pieces) != len(texts):
            return None
        raw = self._before + b"".join(texts) + self._after
        return Chunk(raw, None, [TextDelta(self._choice, text, tuple(pieces))], unread=True)

    def _learn(self, raw: bytes, event: TextDelta) -> None:
        """Find the text in a chunk that says nothing else.

        It came from a key ``content``. Where that stands in the chunk once, and nothing outside the
        text is escaped, so that it is spelt nowhere else, what follows it is the text.
        """
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
