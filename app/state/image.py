"""What a process holds in memory of its state file, and what of it the file doesn't have yet."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ..core.breaker import BreakerState
from . import rows
from .ledger import Changes, Ledger, Purse
from .state_file import Batch, Contents
from .store import StoreError

MOST_ROWS = 2_000  # of a table in one transaction
MOST_EVENTS_WAITING = 10_000  # kept in memory while the file fails, the newest


class Image:
    """``make_ledger`` is given where to note changes. No I/O; one event loop's alone."""

    def __init__(self, make_ledger: Callable[[Changes], Ledger]) -> None:
        self._changes = Changes()
        self.ledger = make_ledger(self._changes)
        self.breakers: dict[str, BreakerState] = {}
        self._breakers_changed: dict[str, None] = {}
        self._events: deque[tuple[Any, ...]] = deque(maxlen=MOST_EVENTS_WAITING)
        self._next_event = 1

    def set_breaker(self, tier: str, state: BreakerState) -> None:
        self.breakers[tier] = state
        self._breakers_changed[tier] = None

    def add_events(self, events: Sequence[Mapping[str, Any]]) -> None:
        """Raises StoreError for what can't be kept."""
        for event in events:
            try:
                row = rows.event(self._next_event, event)
            except (TypeError, KeyError) as error:
                raise StoreError(f"no event to keep: {type(error).__name__}") from error
            self._events.append(row)
            self._next_event += 1

    def restore(self, contents: Contents) -> None:
        """Take over what the file holds."""
        self.ledger.restore(contents.sessions, contents.purses, contents.hours)
        self.breakers = contents.breakers
        self._next_event = contents.last_event + 1

    def all_changed(self) -> None:
        """The file is new: it has nothing of this."""
        self.ledger.all_changed()
        self._breakers_changed = dict.fromkeys(self.breakers)

    def is_dirty(self) -> bool:
        """Whether anything is still to be written."""
        changes = self._changes
        names = (changes.sessions, changes.purses, changes.hours, self._breakers_changed)
        return any(names) or bool(self._events)

    def take(self) -> Batch:
        """The rows of one transaction, as they stand now."""
        ledger = self.ledger
        batch = Batch()
        for name in _popped(self._changes.sessions):
            batch.sessions[name] = ledger.sessions.get(name)
        for name in _popped(self._changes.purses):
            purse = ledger.purses.get(name)
            batch.purses[name] = Purse(dict(purse.used), purse.touched) if purse else None
        for scope in _popped(self._changes.hours):
            hour = ledger.hours.get(scope)
            batch.hours[scope] = hour.buckets() if hour else None
        for tier in _popped(self._breakers_changed):
            batch.breakers[tier] = self.breakers[tier]
        while self._events and len(batch.events) < MOST_ROWS:
            batch.events.append(self._events.popleft())
        return batch

    def put_back(self, batch: Batch) -> None:
        """The batch was not written: its rows are to be, as they will stand then."""
        self._changes.sessions.update(dict.fromkeys(batch.sessions))
        self._changes.purses.update(dict.fromkeys(batch.purses))
        self._changes.hours.update(dict.fromkeys(batch.hours))
        self._breakers_changed.update(dict.fromkeys(batch.breakers))
        self._events = deque([*batch.events, *self._events], maxlen=MOST_EVENTS_WAITING)


def _popped(names: dict[str, None]) -> list[str]:
    """The first of the names, taken out; as a rule all of them."""
    if len(names) <= MOST_ROWS:
        found = list(names)
        names.clear()
        return found
    found = [name for name, _ in zip(names, range(MOST_ROWS), strict=False)]
    for name in found:
        del names[name]
    return found
