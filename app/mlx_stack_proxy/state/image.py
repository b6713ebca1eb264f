"""A state file's image in memory, and the changes in it that the file doesn't have yet.

The ledger holds everything but the events, and its tables note changed rows. Events are in the
image only until they are written. ``take`` makes a transaction's rows of the changes; if the
transaction fails, ``put_back`` notes the changes again.
"""

from __future__ import annotations

from collections import deque
from itertools import islice
from typing import Any

from . import rows
from .ledger import Ledger
from .rows import Batch
from .store import Change, Record

# The most rows in one transaction. They are bounded because the event loop makes them, and because
# each kind is one statement's parameters, of which SQLite before 3.32 takes 999.
MOST_ENTRIES = 300
MOST_EVENTS = 100
MOST_RECORDS = 100
MOST_RECORDS_WAITING = 1_000
MOST_EVENTS_WAITING = 10_000  # the newest ones, kept in memory while the file fails


class Image:
    """The image; it does no I/O, and only the event loop uses it."""

    def __init__(self, ledger: Ledger) -> None:
        self.ledger = ledger
        self.next_event = 1
        self._events: deque[tuple[Any, ...]] = deque(maxlen=MOST_EVENTS_WAITING)
        self._records: deque[Record] = deque(maxlen=MOST_RECORDS_WAITING)

    def write(self, change: Change, now: float) -> dict[str, int]:
        """Apply a change as ``Store.write`` does, in memory.

        Raises TypeError if JSON can't hold an event; then nothing has changed.
        """
        events = [rows.event(n, event) for n, event in enumerate(change.events, self.next_event)]
        self._events += events
        self.next_event += len(events)
        self._records += change.records
        return self.ledger.write(change, now)

    def all_changed(self) -> None:
        """Note every row of the ledger as changed, because the file is new and has none."""
        for table in self.ledger.tables.values():
            table.all_changed()

    def is_dirty(self) -> bool:
        """Whether the file lacks anything."""
        return bool(self._events or self._records) or any(
            table.changed for table in self.ledger.tables.values()
        )

    def take(self) -> Batch:
        """Take out the rows for one transaction. Raises TypeError for a value that is no JSON."""
        batch = Batch()
        tables = self.ledger.tables
        for kind, table in tables.items():
            for name in islice(table.changed, MOST_ENTRIES - len(batch.names)):
                batch.names.append((kind, name))
                if (row := table.get(name)) is None:
                    batch.gone.append(rows.key(kind, name))
                else:
                    batch.entries.append(rows.entry(kind, name, row))
        for kind, name in batch.names:
            del tables[kind].changed[name]
        while self._events and len(batch.events) < MOST_EVENTS:
            batch.events.append(self._events.popleft())
        while self._records and len(batch.records) < MOST_RECORDS:
            batch.records.append(self._records.popleft())
        return batch

    def put_back(self, batch: Batch) -> None:
        """Take back a batch that was not written.

        The batch's rows are noted as changed, so that the next batch writes their newest content.
        """
        for kind, name in batch.names:
            self.ledger.tables[kind].changed[name] = None
        self._events = deque([*batch.events, *self._events], maxlen=MOST_EVENTS_WAITING)
        self._records = deque([*batch.records, *self._records], maxlen=MOST_RECORDS_WAITING)
