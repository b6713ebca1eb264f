"""Splits a byte stream into server-sent events, in linear time and for any split of the bytes.

The framing follows the WHATWG HTML standard, section 9.2.6 (lines end in LF, CR LF or CR; a blank
line ends an event; a line that begins with a colon is a comment), with one leniency: if the stream
ends before the last event's blank line, that event is returned too, and its reader decides whether
its data is complete. Additional blank lines after an event are dropped.
"""

from __future__ import annotations

import re

from msgspec import Struct

MAX_FRAME_BYTES = 64 * 1024 * 1024

# Two line ends in a row. A CR at the buffer's end may be half a CR LF, so it waits.
_BLANK_LINE = re.compile(rb"(?:\r\n|\n|\r(?!\n|\Z)){2}")
_LINE_END = re.compile(rb"\r\n|\n|\r")
_BLANK_END = re.compile(rb"(?:\r\n|\n|\r(?!\n)){2}\Z")
_BOM = b"\xef\xbb\xbf"


class FrameTooLong(ValueError):
    """One event is longer than ``MAX_FRAME_BYTES``."""


class Frame(Struct, frozen=True, gc=False):
    """One event."""

    raw: bytes  # including its blank line
    data: bytes | None  # None: the event has no data, for example a comment


class FrameReader:
    """Splits a byte stream into frames. Feed it the bytes; call :meth:`finish` at the end."""

    __slots__ = ("_buffer", "_scanned", "_started")

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._scanned = 0
        self._started = False

    def feed(self, data: bytes) -> list[Frame]:
        """Return the frames that ``data`` completes. Raises :class:`FrameTooLong`."""
        # `find` is cheaper than `in`, which first tries to treat the bytes as a number.
        plain = data.startswith(b"data: ") and data.endswith(b"\n\n") and data.find(b"\r") < 0
        if plain and not self._buffer:
            # Nearly every read of a real stream: whole events with LF only, mostly just one.
            self._started = True
            if data.find(b"\n") == len(data) - 2:
                return [Frame(data, data[6:-2])]
            lines = data[6:-2].split(b"\n\ndata: ")
            if data.count(b"\n") == 2 * len(lines):  # no event has a second line
                return [Frame(b"data: " + line + b"\n\n", line) for line in lines]
        self._buffer += data
        if not self._started:
            if _BOM.startswith(self._buffer[:4]):
                return []  # perhaps a part of the byte order mark
            self._started = True
            if self._buffer.startswith(_BOM):
                del self._buffer[: len(_BOM)]
        return self._cut()

    @property
    def waiting(self) -> int:
        """The size in bytes of the incomplete event."""
        return len(self._buffer)

    def finish(self) -> Frame | None:
        """Return the frame that the stream's end left without a blank line, if any."""
        raw = bytes(self._buffer) if self._started else b""
        self._buffer.clear()
        self._scanned = 0
        return _frame(raw) if raw.strip() else None

    def _cut(self) -> list[Frame]:
        frames = []
        buffer = self._buffer
        start = _after_line_ends(buffer, 0)
        # Blank lines are at most four bytes, so a match begins at most three before the new bytes.
        position = max(start, self._scanned - 3)
        while match := _BLANK_LINE.search(buffer, position):
            frames.append(_frame(bytes(buffer[start : match.end()])))
            start = position = _after_line_ends(buffer, match.end())
        if start:
            del buffer[:start]
        self._scanned = len(buffer)
        if self._scanned > MAX_FRAME_BYTES:
            raise FrameTooLong(f"an event of more than {MAX_FRAME_BYTES} bytes")
        return frames


def _after_line_ends(buffer: bytearray, position: int) -> int:
    while position < len(buffer) and buffer[position] in b"\r\n":
        position += 1
    return position


def _frame(raw: bytes) -> Frame:
    if raw.startswith(b"data: ") and raw.find(b"\n", 6) == len(raw) - 2 and b"\r" not in raw:
        return Frame(raw, raw[6:-2])
    data = []
    for line in _LINE_END.split(raw):
        if line.startswith(b"data"):
            field, colon, value = line.partition(b":")
            if field == b"data":
                data.append(value.removeprefix(b" ") if colon else b"")
    return Frame(raw, b"\n".join(data) if data else None)


def data_of(raw: bytes) -> bytes | None:
    """Return the data of an event; None if it has none."""
    return _frame(raw).data


def ended(frame: Frame) -> Frame:
    """Return a stream's last event, with a blank line added if the event lacks one."""
    raw = frame.raw
    if _BLANK_END.search(raw, max(0, len(raw) - 4)) is not None:
        return frame  # even after a final CR, which `feed` held back as half of a CR LF
    return Frame(raw.rstrip(b"\r\n") + b"\n\n", frame.data)


def data_frame(payload: bytes) -> bytes:
    """Return the bytes of an event with one line of data."""
    return b"data: " + payload + b"\n\n"


def named_frame(name: str, payload: bytes) -> bytes:
    """Return the bytes of an event with a name and one line of data."""
    return b"event: %b\ndata: %b\n\n" % (name.encode(), payload)


def comment_frame(text: str) -> bytes:
    """Return the bytes of a comment, which clients ignore. ``text``: one line."""
    return f": {text}\n\n".encode()


DONE = b"[DONE]"
DONE_FRAME = data_frame(DONE)
