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

import itertools
from collections.abc import Iterator, Sequence

import orjson

from . import sse, surrogates
from .chunks import Chunk, read_events, read_frame
from .events import TextDelta

# A stream whose chunks differ in more than their text is not asked for a pattern for ever.
_MAX_TRIES = 8
_PROBE = "probe"


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
        position = 0
        while position < len(frames):
            texts = self._texts(frames, position)
            joined = self._joined(texts) if len(texts) > 1 else None
            if joined is not None:
                yield joined
            else:
                for frame in frames[position : position + max(len(texts), 1)]:
                    yield self.read(frame)
            position += max(len(texts), 1)

    def _texts(self, frames: Sequence[sse.Frame], position: int) -> list[bytes]:
        """What stands in the text's place in the frames from there on that differ in it alone."""
        before, after, around = self._before, self._after, self._around
        texts: list[bytes] = []
        if not after:
            return texts
        start, end = len(before), -len(after)
        for frame in itertools.islice(frames, position, None):
            raw = frame.raw
            if len(raw) <= around or not (raw.startswith(before) and raw.endswith(after)):
                break
            texts.append(raw[start:end])
        return texts

    def _joined(self, texts: list[bytes]) -> Chunk | None:
        """One chunk with all of them; None where one isn't a string, or has half a character."""
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
        """Find the text in a chunk that says nothing else."""
        text = orjson.dumps(event.text)
        for key in (b'"content":', b'"content": '):
            if raw.count(key + text) == 1:
                before, _, after = raw.partition(key + text)
                before, after = before + key + b'"', b'"' + after
                break
        else:
            return
        try:
            other = orjson.loads(before[6:] + _PROBE.encode() + after)
        except orjson.JSONDecodeError:
            return
        if read_events(other) == [TextDelta(event.choice, _PROBE)]:
            self._before, self._after, self._choice = before, after, event.choice
            self._around = len(before) + len(after)
