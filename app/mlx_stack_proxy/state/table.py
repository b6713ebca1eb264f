"""Rows by name in memory, which know what of them is still to be written down."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable, Iterable
from typing import TypeVar

Name = TypeVar("Name", bound=Hashable)
Row = TypeVar("Row")


class Table(OrderedDict[Name, Row]):
    """``changed``: names whose rows were set or deleted, in that order (as dicts keep it).

    A row that changes in place is to be set again.
    """

    def __init__(self) -> None:
        self.changed: dict[Name, None] = {}
        super().__init__()

    def __setitem__(self, name: Name, row: Row) -> None:
        super().__setitem__(name, row)
        self.changed[name] = None

    def __delitem__(self, name: Name) -> None:
        super().__delitem__(name)
        self.changed[name] = None

    def all_changed(self) -> None:
        """Nothing of it is written down any more."""
        self.changed.update(dict.fromkeys(self))

    def restore(self, rows: Iterable[tuple[Name, Row]]) -> None:
        """Take over rows that are written down."""
        self.clear()
        self.update(rows)
        self.changed.clear()
