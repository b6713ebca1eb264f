"""What a process holds in memory of its state file, and what of it the file doesn't have yet."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ..core.breaker import BreakerState
from . import rows
from .ledger import Changes, Ledger
from .state_log import ROWS, Batch, Contents, encode
from .store import StoreError

MOST_ROWS = 500  # of a kind in one transaction: they are encoded in the event loop
MOST_EVENTS_WAITING = 10_000  # kept in memory while the file fails, the newest
# In the file there may be as many rows that don't count any more as there are that do, and these.
SPARE_ENTRIES = 1_000

Names = dict[str, list[str]]  # by kind of row


class Image:
    """``make_ledger`` is given where to note changes. No I/O; one event loop's alone."""

    def __init__(self, make_ledger: Callable[[Changes], Ledger]) -> None:
        changes = Changes()
        self.ledger = make_ledger(changes)
        self.breakers: dict[str, BreakerState] = {}
        self._changed: dict[str, dict[str, None]] = {
            "sessions": changes.sessions,
            "purses": changes.purses,
            "hours": changes.hours,
            "minutes": changes.minutes,
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

    def restore(self, contents: Contents) -> None:
        """Take over what the file holds."""
        self.ledger.restore(contents.sessions, contents.purses, contents.hours)
        self.breakers = contents.breakers
        self._next_event = contents.last_event + 1

    def names(self) -> Names:
        """Of all that there is."""
        return {kind: list(self._held(kind)) for kind in ROWS}

    def all_changed(self) -> None:
        """The file is new: it has nothing of this."""
        for kind, names in self.names().items():
            self._changed[kind].update(dict.fromkeys(names))

    def write_again(self, names: Names, at_most: int) -> bool:
        """Some of ``names``, which are taken out of it, are to be written; whether more are left.

        Those that are gone meanwhile are not: that they are is written later than ``names`` is old.
        """
        for kind, left in names.items():
            now = left[-at_most:]
            del left[-at_most:]
            held = self._held(kind)
            self._changed[kind].update(dict.fromkeys(name for name in now if name in held))
        return any(names.values())

    @property
    def live(self) -> int:
        """How many entries count."""
        ledger = self.ledger
        hours = 2 * len(ledger.hours)  # and their minutes
        return len(ledger.sessions) + len(ledger.purses) + hours + len(self.breakers)

    def outgrown(self, entries: int) -> bool:
        """Whether in a file of so many entries too many don't count any more."""
        return entries > 2 * self.live + SPARE_ENTRIES

    def is_dirty(self) -> bool:
        """Whether anything is still to be written."""
        return any(self._changed.values()) or bool(self._events)

    def take(self) -> Batch:
        """What one transaction writes, as it stands now. Raises TypeError for what is no JSON."""
        batch = Batch({}, None, [])
        try:
            entries = {}
            for kind, changed in self._changed.items():
                if changed:
                    names = batch.names[kind] = _popped(changed)
                    batch.entries += len(names)
                    entries[kind] = self._rows(kind, names)
            if entries:
                batch.changes = encode(entries)
        except BaseException:
            self.put_back(batch)
            raise
        while self._events and len(batch.events) < MOST_ROWS:
            batch.events.append(self._events.popleft())
        return batch

    def put_back(self, batch: Batch) -> None:
        """The batch was not written: its rows are to be, as they will stand then."""
        for kind, names in batch.names.items():
            self._changed[kind].update(dict.fromkeys(names))
        if batch.events:
            self._events = deque([*batch.events, *self._events], maxlen=MOST_EVENTS_WAITING)

    def _held(self, kind: str) -> Mapping[str, Any]:
        if kind == "breakers":
            return self.breakers
        held: Mapping[str, Any] = getattr(self.ledger, "hours" if kind == "minutes" else kind)
        return held

    def _rows(self, kind: str, names: list[str]) -> list[tuple[Any, ...]]:
        held, row_of = self._held(kind), ROWS[kind]
        return [
            row_of(name, value) if (value := held.get(name)) is not None else (name,)
            for name in names
        ]


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
