"""What a process holds in memory of its state file, and what of it the file doesn't have yet."""

from __future__ import annotations

from collections import deque
from itertools import islice
from typing import Any

from . import rows
from .hourly import Agents, HourKey, merge
from .ledger import Ledger
from .rows import Batch
from .store import Change

# In one transaction: they are made in the event loop, and are parameters of one statement, of which
# SQLite before 3.32 takes 999.
MOST_ENTRIES = 300
MOST_EVENTS = 100
MOST_COUNT_ROWS = 200
MOST_EVENTS_WAITING = 10_000  # kept in memory while the file fails, the newest


class Image:
    """No I/O; one event loop's alone."""

    def __init__(self, ledger: Ledger) -> None:
        self.ledger = ledger
        self._counts: dict[HourKey, dict[str, float]] = {}  # to be added to those of the file
        self._agents = Agents()
        self.next_event = 1
        self._events: deque[tuple[Any, ...]] = deque(maxlen=MOST_EVENTS_WAITING)

    def write(self, change: Change, now: float) -> dict[str, int]:
        """As the store's. Raises TypeError for an event that is no JSON; then all is as before."""
        events = [rows.event(n, event) for n, event in enumerate(change.events, self.next_event)]
        self._events += events
        self.next_event += len(events)
        for key, counts in change.counts.items():
            merge(self._counts, {self._agents.bounded(key): counts})
        return self.ledger.write(change, now)

    def all_changed(self) -> None:
        """The file is new: it has nothing of this."""
        for table in self.ledger.tables.values():
            table.all_changed()

    def is_dirty(self) -> bool:
        """Whether anything is still to be written."""
        tables = self.ledger.tables.values()
        return bool(self._counts or self._events) or any(table.changed for table in tables)

    def take(self) -> Batch:
        """What one transaction writes, as it stands now. Raises TypeError for what is no JSON."""
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
        for key in list(islice(self._counts, MOST_COUNT_ROWS)):
            batch.counts[key] = self._counts.pop(key)
        return batch

    def put_back(self, batch: Batch) -> None:
        """The batch was not written: its entries are to be, as they will stand then."""
        for kind, name in batch.names:
            self.ledger.tables[kind].changed[name] = None
        merge(self._counts, batch.counts)
        self._events = deque([*batch.events, *self._events], maxlen=MOST_EVENTS_WAITING)
