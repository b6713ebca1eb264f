"""What a process holds in memory of its state file, and what of it the file doesn't have yet."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from itertools import islice
from typing import Any

from . import rows
from .hourly import Deltas, HourKey, Hourly
from .ledger import Changes, Ledger
from .rows import Batch, Contents
from .store import BreakerState, StoreError

# In one transaction: they are made in the event loop, and are parameters of one statement, of which
# SQLite before 3.32 takes 999.
MOST_ENTRIES = 300
MOST_EVENTS = 100
MOST_COUNT_ROWS = 200
MOST_EVENTS_WAITING = 10_000  # kept in memory while the file fails, the newest


class Image:
    """``make_ledger`` is given where to note changes. No I/O; one event loop's alone."""

    def __init__(self, make_ledger: Callable[[Changes], Ledger]) -> None:
        changes = Changes()
        self.ledger = make_ledger(changes)
        self.breakers: dict[str, BreakerState] = {}
        self.hourly = Hourly()  # of the last hours, as far as they are held
        self._counted: dict[HourKey, None] = {}  # rows of it that the file doesn't have so
        self._changed: dict[str, dict[str, None]] = {
            "sessions": changes.sessions,
            "purses": changes.purses,
            "hours": changes.hours,
            "breakers": {},
        }
        self._events: deque[tuple[Any, ...]] = deque(maxlen=MOST_EVENTS_WAITING)
        self._next_event = 1

    def set_breaker(self, tier: str, state: BreakerState) -> None:
        self.breakers[tier] = state
        self._changed["breakers"][tier] = None

    def add_events(self, events: Sequence[Mapping[str, Any]]) -> None:
        """Raises StoreError for what can't be kept."""
        for event in events:
            try:
                row = rows.event(self._next_event, event)
            except (TypeError, KeyError) as error:
                raise StoreError(f"no event to keep: {type(error).__name__}") from error
            self._events.append(row)
            self._next_event += 1

    def add_counts(self, deltas: Deltas) -> None:
        self._counted.update(dict.fromkeys(self.hourly.add(deltas)))

    def forget_counts(self, before: int) -> None:
        """Hold no rows of earlier hours any longer, once they are in the file."""
        self.hourly.forget(before, self._counted)

    def restore(self, contents: Contents) -> None:
        """Take over what the file holds."""
        self.ledger.restore(contents.sessions, contents.purses, contents.hours)
        self.breakers = contents.breakers
        self._next_event = contents.last_event + 1

    def all_changed(self) -> None:
        """The file is new: it has nothing of this."""
        for kind, changed in self._changed.items():
            changed.update(dict.fromkeys(self._held(kind)))
        self._counted.update(dict.fromkeys(self.hourly.rows))

    def is_dirty(self) -> bool:
        """Whether anything is still to be written."""
        return any(self._changed.values()) or bool(self._events) or bool(self._counted)

    def take(self) -> Batch:
        """What one transaction writes, as it stands now. Raises TypeError for what is no JSON."""
        batch = Batch()
        room = MOST_ENTRIES
        for kind, changed in self._changed.items():
            names = batch.names[kind] = list(islice(changed, room))
            room -= len(names)
            self._add(batch, kind, names)
        for kind, names in batch.names.items():
            for name in names:
                del self._changed[kind][name]
        while self._events and len(batch.events) < MOST_EVENTS:
            batch.events.append(self._events.popleft())
        for key in list(islice(self._counted, MOST_COUNT_ROWS)):
            batch.counts.append(rows.counts(key, self.hourly.rows[key]))
            del self._counted[key]
        return batch

    def put_back(self, batch: Batch) -> None:
        """The batch was not written: its entries are to be, as they will stand then."""
        for kind, names in batch.names.items():
            self._changed[kind].update(dict.fromkeys(names))
        self._counted.update(dict.fromkeys(HourKey(*row[:3]) for row in batch.counts))
        self._events = deque([*batch.events, *self._events], maxlen=MOST_EVENTS_WAITING)

    def _add(self, batch: Batch, kind: str, names: list[str]) -> None:
        held = self._held(kind)
        for name in names:
            if (value := held.get(name)) is None:
                batch.gone.append(rows.key(kind, name))
            else:
                batch.entries.append(rows.entry(kind, name, value))

    def _held(self, kind: str) -> Mapping[str, Any]:
        if kind == "breakers":
            return self.breakers
        held: Mapping[str, Any] = getattr(self.ledger, kind)
        return held
