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
from .chunk_form import ChunkForm
from .chunks import Chunk, read_frame
from .completion import adds_text_alone
from .events import TextDelta

# A stream whose chunks differ in more than their text is not asked for a pattern for ever.
_MAX_TRIES = 8


class ChunkReader:
    """One stream's. ``text_alone``: chunks that are unread add nothing else to a whole reply.

    ``choice``: whose text they bring. ``form``: brings them into the form that clients expect.
    """

    __slots__ = (
        "_after",
        "_around",
        "_before",
        "_close",
        "_form",
        "_formed",
        "_halves",
        "_open",
        "_tries",
        "choice",
        "text_alone",
    )

    def __init__(self, form: ChunkForm | None = None) -> None:
        self._form = form
        self._formed: tuple[bytes, bytes] | None = None  # before and after the text, in form
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
                # More than one string, or half of one.
                return read_frame(frame, self._halves, self._form)
            if self._formed is not None:
                before, after = self._formed
                raw = b"".join((before, raw[len(self._before) : -len(self._after)], after))
            return Chunk(raw, None, [TextDelta(self.choice, text)], unread=True)
        chunk = read_frame(frame, self._halves, self._form)
        if self._tries < _MAX_TRIES and len(chunk.events) == 1:
            event = chunk.events[0]
            if type(event) is TextDelta and raw.startswith(b"data: ") and frame.data == raw[6:-2]:
                self._tries += 1
                self._learn(raw, chunk, event)
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

    def _learn(self, raw: bytes, chunk: Chunk, event: TextDelta) -> None:
        """Find the text in a chunk that says nothing else, as it came and as it goes out.

        The first of a choice, which has its role, is like none of the others in form.
        """
        payload = chunk.payload
        if payload is None or (self._form and payload["choices"][0]["delta"].get("role")):
            return
        came = _around(raw, event.text)
        formed = came if chunk.raw is raw else _around(chunk.raw, event.text)
        if came is None or formed is None:
            return
        self._before, self._after = came
        self._formed = None if chunk.raw is raw else formed
        self._around = len(self._before) + len(self._after)
        self._open, self._close = len(self._before) - 1, 1 - len(self._after)
        self.choice = event.choice
        self.text_alone = adds_text_alone(payload)


def _around(raw: bytes, said: str) -> tuple[bytes, bytes] | None:
    """The bytes before and after a text in a chunk, with its quotes; None where that is not sure.

    It came from a key ``content``. Where that stands in the chunk once, and nothing outside the
    text is escaped, so that it is spelt nowhere else, what follows it is the text.
    """
    if raw.count(b'"content"') != 1:
        return None
    text = orjson.dumps(said)
    for key in (b'"content":', b'"content": '):
        before, found, after = raw.partition(key + text)
        if found:
            if (before + after).find(b"\\") >= 0:
                return None
            return before + key + b'"', b'"' + after
    return None
