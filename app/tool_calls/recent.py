"""What was made of a text the last times, kept while it is small enough."""

from __future__ import annotations

from collections import OrderedDict
from typing import Generic, TypeVar

from app.kept import kept

Value = TypeVar("Value")


class Recent(Generic[Value]):
    """The values used last, by the text they were made of: so many, and so many bytes of text.

    What a client sends decides how large a text is, so their number alone would bound nothing.
    """

    __slots__ = ("_bytes", "_most", "_most_bytes", "_values")

    def __init__(self, most: int, most_bytes: int) -> None:
        self._most, self._most_bytes = most, most_bytes
        self._values: OrderedDict[bytes, Value] = OrderedDict()
        self._bytes = 0

    def __len__(self) -> int:
        return len(self._values)

    def get(self, text: bytes) -> Value | None:
        value = self._values.get(text)
        if value is not None:
            self._values.move_to_end(text)
        return value

    def put(self, text: bytes, value: Value) -> None:
        """Keep a value that is not kept yet, unless its text alone is too long."""
        if len(text) > self._most_bytes:
            return
        self._values[kept(text)] = value
        self._bytes += len(text)
        while len(self._values) > self._most or self._bytes > self._most_bytes:
            oldest, _ = self._values.popitem(last=False)
            self._bytes -= len(oldest)

    def clear(self) -> None:
        self._values.clear()
        self._bytes = 0
