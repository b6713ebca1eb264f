"""What the store keeps, as rows of the state file's tables, and back.

A row is a tuple in the order of its table's columns (``SCHEMA`` in ``state_file.py``); its first
value is its name. What one column can't hold is JSON. Rows that make no sense raise ``ValueError``,
``TypeError``, ``LookupError`` or ``AttributeError``.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import orjson

from ..core.breaker import BreakerState
from .ledger import Purse
from .rolling_hour import RollingHour
from .store import SessionState, Sticky

Row = tuple[Any, ...]


@dataclass(slots=True)
class Contents:
    """What a file holds, but for its events. Sessions and purses: by last use, oldest first.

    ``last_event``: the highest number that an event ever had; 0 if there was none.
    """

    sessions: list[SessionState] = field(default_factory=list)
    purses: list[tuple[str, Purse]] = field(default_factory=list)
    hours: list[tuple[str, RollingHour]] = field(default_factory=list)
    breakers: dict[str, BreakerState] = field(default_factory=dict)
    last_event: int = 0


@dataclass(slots=True)
class Batch:
    """What one transaction writes, by table.

    ``rows``: whole rows, in place of those of the same names. ``gone``: names to delete.
    """

    rows: dict[str, list[Row]] = field(default_factory=lambda: defaultdict(list))
    gone: dict[str, list[str]] = field(default_factory=lambda: defaultdict(list))

    def names(self, table: str) -> list[str]:
        """Whom it writes of, those that are gone included."""
        return [*(row[0] for row in self.rows.get(table, ())), *self.gone.get(table, ())]


def pack(window: tuple[bytes, ...]) -> bytes:
    """Each digest after its length in two bytes."""
    return b"".join(len(digest).to_bytes(2) + digest for digest in window)


def unpack(packed: bytes) -> tuple[bytes, ...]:
    """A window from what :func:`pack` made of it."""
    window, at = [], 0
    while at < len(packed):
        end = at + 2 + int.from_bytes(packed[at : at + 2])
        if end > len(packed):
            raise ValueError("a window is cut off")
        window.append(packed[at + 2 : end])
        at = end
    return tuple(window)


def session(name: str, state: SessionState) -> Row:
    """A session, without its counts."""
    sticky = _json({model: (entry.tier, entry.until) for model, entry in state.sticky.items()})
    window = pack(state.window)
    return name, state.turns, state.tier, window, sticky, state.first_seen, state.last_seen


def session_of(row: Row) -> SessionState:
    name, turns, tier, window, sticky, first_seen, last_seen = row
    return SessionState(
        name,
        turns=turns,
        tier=tier,
        window=unpack(window),
        sticky={model: Sticky(*entry) for model, entry in orjson.loads(sticky).items()},
        first_seen=first_seen,
        last_seen=last_seen,
    )


def purse(name: str, purse: Purse) -> Row:
    return name, _json(purse.used), purse.touched


def purse_of(row: Row) -> tuple[str, Purse]:
    name, used, touched = row
    return name, Purse(dict(orjson.loads(used).items()), touched)


def hour(scope: str, hour: RollingHour) -> Row:
    return scope, _json(hour.buckets())


def hour_of(row: Row) -> tuple[str, RollingHour]:
    scope, buckets = row
    return scope, RollingHour((minute, tokens) for minute, tokens in orjson.loads(buckets))


def breaker(tier: str, state: BreakerState) -> Row:
    return tier, state.failures, state.degraded_until, state.cooldown


def breaker_of(row: Row) -> tuple[str, BreakerState]:
    tier, failures, degraded_until, cooldown = row
    return tier, BreakerState(failures, degraded_until, cooldown)


def event(number: int, event: Mapping[str, Any]) -> Row:
    """Raises ``TypeError`` for what is no JSON, ``KeyError`` for what lacks something."""
    return number, event["time"], event["kind"], event["session"], _json(event)


# By table: the row of a name and of what has that name.
ROW_OF: Final[Mapping[str, Callable[[str, Any], Row]]] = {
    "sessions": session,
    "purses": purse,
    "hours": hour,
    "breakers": breaker,
}


def _json(value: Any) -> str:
    return orjson.dumps(value).decode()
