"""Runs of whitespace that don't end: what constrained decoding falls into (vLLM and others)."""

from __future__ import annotations

import re


class WhitespaceRun:
    """Takes a text in pieces; remembers only how many of its last characters are whitespace."""

    __slots__ = ("_length", "_limit", "_run")

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._length = 0
        self._run = 0

    @property
    def due(self) -> int:
        """The length of text up to which nothing can be decided."""
        return self._length - self._run + self._limit + 1

    def feed(self, piece: str) -> tuple[int, int] | None:
        """Where a run begins and where it passed the limit, once one has."""
        size = len(piece)
        bare = piece.lstrip()
        start, self._length = self._length - self._run, self._length + size
        if not bare:
            self._run += size
            return self._passed(start) if self._run > self._limit else None
        if self._run + size - len(bare) > self._limit:
            return self._passed(start)
        start = self._length - size
        self._run = size - len(piece.rstrip())
        inside = re.search(rf"\s{{{self._limit + 1}}}", piece) if size > self._limit else None
        return self._passed(start + inside.start()) if inside is not None else None

    def _passed(self, start: int) -> tuple[int, int]:
        return start, start + self._limit + 1
