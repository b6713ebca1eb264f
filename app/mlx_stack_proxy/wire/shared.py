"""What the dialects share: calls as their pieces come."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .chunk_form import index_of


class Call:
    """A call as far as it has come. ``id``, ``name``: "" while its server has said none."""

    __slots__ = ("_arguments", "id", "name")

    def __init__(self) -> None:
        self.id = ""
        self.name = ""
        self._arguments: list[str] = []

    @property
    def arguments(self) -> str:
        return "".join(self._arguments)

    def add(self, piece: Mapping[str, Any]) -> None:
        function = piece.get("function") or {}
        self.id = self.id or piece.get("id") or ""
        self.name = self.name or function.get("name") or ""
        self._arguments.append(function.get("arguments") or "")


class Calls:
    """Gathers the calls of a delta or a message: servers may send pieces of several in turn."""

    __slots__ = ("_by_index",)

    def __init__(self) -> None:
        self._by_index: dict[int, Call] = {}

    def __bool__(self) -> bool:
        return bool(self._by_index)

    def add(self, said: Mapping[str, Any]) -> None:
        for place, piece in enumerate(said.get("tool_calls") or ()):
            self._by_index.setdefault(index_of(piece, place), Call()).add(piece)

    def in_order(self) -> list[tuple[int, Call]]:
        """Each with its index."""
        return sorted(self._by_index.items())
