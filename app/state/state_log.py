"""The log in a state file: what each transaction adds, and what all of them come to.

Only ever appended to, which costs one page of the file where tables of sessions and counts cost one
each, all over the file. An entry is a whole row, so that the last one of a name is all that counts,
and one that is written twice counts nothing twice. What is not the last one any more makes the
file grow: the keeper writes anew what lies in the oldest part, and forgets that part.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import orjson

from ..core.breaker import BreakerState
from . import rows
from .ledger import Purse
from .rolling_hour import RollingHour
from .store import SessionState

# By kind of row: how it is made of a name and what has it. An entry without more than the name:
# it is gone.
ROWS: Final[Mapping[str, Callable[[str, Any], tuple[Any, ...]]]] = {
    "sessions": rows.session,
    "purses": rows.purse,
    "hours": rows.hour,
    "minutes": rows.minute,
    "breakers": rows.breaker,
}


@dataclass(slots=True)
class Contents:
    """What a file holds, but for its events. Sessions and purses: by last use, oldest first.

    ``entries``: how many the log has, those included that are not the last ones of their names.
    """

    sessions: list[SessionState] = field(default_factory=list)
    purses: list[tuple[str, Purse]] = field(default_factory=list)
    hours: list[tuple[str, RollingHour]] = field(default_factory=list)
    breakers: dict[str, BreakerState] = field(default_factory=dict)
    last_event: int = 0
    entries: int = 0


@dataclass(slots=True)
class Batch:
    """What one transaction writes. ``names``: of its entries, by kind.

    ``changes``: the entries, as :func:`encode` makes them; None: there are none. ``events``: rows,
    as ``rows.event`` makes them.
    """

    names: dict[str, list[str]]
    changes: bytes | None
    events: list[tuple[Any, ...]]
    entries: int = 0


def encode(entries: Mapping[str, list[tuple[Any, ...]]]) -> bytes:
    """Entries by kind. Raises ``TypeError`` for what is no JSON."""
    return orjson.dumps(entries)


def decode(newest_first: Iterable[bytes | str]) -> Contents:
    """What a log comes to. Nonsense: ``ValueError``, ``TypeError``, ``LookupError``,
    ``AttributeError``.
    """
    last: dict[str, dict[str, Any]] = {kind: {} for kind in ROWS}
    count = 0
    for changes in newest_first:
        for kind, entries in orjson.loads(changes).items():
            count += len(entries)
            found = last[kind]
            for entry in reversed(entries):
                found.setdefault(entry[0], entry)
    sessions, purses, hours, _, breakers = (
        [entry for entry in last[kind].values() if len(entry) > 1] for kind in ROWS
    )
    minutes = last["minutes"]
    return Contents(
        sessions=sorted(map(rows.session_of, sessions), key=lambda state: state.last_seen),
        purses=sorted(map(rows.purse_of, purses), key=lambda purse: purse[1].touched),
        hours=[rows.hour_of(entry, minutes.get(entry[0], ())) for entry in hours],
        breakers=dict(map(rows.breaker_of, breakers)),
        entries=count,
    )
