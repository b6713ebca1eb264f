"""Rows by name in memory, with a record of which rows the file doesn't have yet."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable, Iterable
from typing import TypeVar

Name = TypeVar("Name", bound=Hashable)
Row = TypeVar("Row")


class Table(OrderedDict[Name, Row]):
    """An ordered dict that notes the names of rows that were set or deleted.

    A caller who changes a row in place sets it again, so that the table notes it.
    """

    def __init__(self) -> None:
        # Names to be written, the first changed first; whoever writes a row deletes its name here.
        self.changed: dict[Name, None] = {}
        super().__init__()

    def __setitem__(self, name: Name, row: Row) -> None:
        super().__setitem__(name, row)
        self.changed[name] = None

    def __delitem__(self, name: Name) -> None:
        super().__delitem__(name)
        self.changed[name] = None

    def all_changed(self) -> None:
        """Note every row as changed: the file is new and has none."""
        self.changed.update(dict.fromkeys(self))

    def restore(self, rows: Iterable[tuple[Name, Row]]) -> None:
        """Replace all rows by those read from the file, and note none as changed."""
        self.clear()
        self.update(rows)
        self.changed.clear()
