"""A text that arrives in pieces."""

from __future__ import annotations


class GrowingText:
    """A text that arrives in pieces, joined when read; linear in total.

    A watcher keeps an offset into it, not a copy.
    """

    __slots__ = ("_pieces", "_text", "bytes", "count", "size")

    def __init__(self, text: str = "") -> None:
        self._text = text
        self._pieces: list[str] = []
        self.size = len(text)  # characters
        self.bytes = utf8_size(text)
        self.count = 0  # pieces so far

    def add(self, piece: str, count: int = 1) -> None:
        """Add a piece, or ``count`` pieces that were joined."""
        self._pieces.append(piece)
        size = len(piece)
        self.size += size
        self.bytes += size if piece.isascii() else utf8_size(piece)
        self.count += count

    def text(self) -> str:
        if self._pieces:
            text, self._text = self._text, ""
            text += "".join(self._pieces)  # no copy: Python extends it in place
            self._text = text
            self._pieces.clear()
        return self._text


def utf8_size(text: str) -> int:
    """Return a text's size in UTF-8 bytes; a lone surrogate counts as three."""
    return len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))
