"""Whether the end of a growing text has been there before: asked often, and linear in all.

Of the text every 48 characters that begin at a multiple of 16 are remembered, by their hash. The
last 64 characters, wherever they stood before, held one of those.
"""

from __future__ import annotations

PROBE = 64  # characters at the end
_STEP = 16
_PIECE = PROBE - _STEP


class Seen:
    """What has been seen of one text."""

    __slots__ = ("_hashes", "_upto")

    def __init__(self) -> None:
        self._hashes: set[int] = set()
        self._upto = 0

    def may_repeat(self, text: str) -> bool:
        """Whether the last ``PROBE`` characters may have been there, wholly before themselves.

        False is certain. ``text`` is what it was the last time, and more.
        """
        start = len(text) - PROBE
        if start < PROBE:
            return False
        new = range(self._upto, start - _PIECE + 1, _STEP)
        if new:
            self._hashes.update([hash(text[at : at + _PIECE]) for at in new])
            self._upto = new[-1] + _STEP
        pieces = [hash(text[at : at + _PIECE]) for at in range(start, start + _STEP)]
        return not self._hashes.isdisjoint(pieces)
