"""Holds the frames of a reply until its end, as bytes, which are compressed if they are many."""

from __future__ import annotations

import zlib
from typing import Final

BLOCK: Final = 64 * 1024  # bytes compressed at a time: about a millisecond's work


class Tape:
    """Keeps frames in order."""

    __slots__ = ("_last", "_packed", "_packer", "_waiting")

    def __init__(self) -> None:
        self._last = b""
        self._waiting = bytearray()  # earlier frames that are not compressed
        self._packed: list[bytes] = []
        self._packer: zlib._Compress | None = None

    def add(self, frame: bytes) -> None:
        """Keep a frame; ignores b""."""
        if not frame:
            return
        self._waiting += self._last
        self._last = frame
        if len(self._waiting) > BLOCK:
            if self._packer is None:
                self._packer = zlib.compressobj(1)
            self._packed.append(self._packer.compress(self._waiting[:BLOCK]))
            del self._waiting[:BLOCK]

    def unpack(self) -> None:
        """Decompress the frames; no frame may be added afterwards."""
        if self._packer is not None:
            packed = b"".join([*self._packed, self._packer.flush()])
            self._waiting[:0] = zlib.decompress(packed)
            self._packed, self._packer = [], None

    def take(self) -> tuple[bytes, bytes]:
        """Return all frames but the last, and the last."""
        self.unpack()
        return bytes(self._waiting), self._last
