"""Translate the ledger's values into rows of the state file, and back.

A session, a purse, a rolling hour, a breaker and a row of the hours' counters are each one entry: a
name, a kind, and the content as JSON.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import orjson

from .hourly import HourKey
from .ledger import Purse
from .rolling_hour import RollingHour
from .store import BreakerState, Record, SessionState, Sticky

# Before the kind of a row that made no sense: it stays in the file, and is not read again.
ODD: Final = "odd "
Entry = tuple[str, str, str]  # name, kind, content
# By kind, (name, value) pairs; sessions and purses by last use, counters by hour, oldest first.
Contents = Mapping[str, list[tuple[Any, Any]]]


@dataclass(slots=True)
class Batch:
    """The rows that one transaction writes."""

    # (kind, name in the ledger) of all rows in ``entries`` and ``gone``.
    names: list[tuple[str, Any]] = field(default_factory=list)
    entries: list[Entry] = field(default_factory=list)  # each replaces its name and kind's row
    gone: list[tuple[str, str]] = field(default_factory=list)  # (name, kind) to delete
    # (number, time, kind, session, the whole event as JSON).
    events: list[tuple[Any, ...]] = field(default_factory=list)

    records: list[Record] = field(default_factory=list)

    def values(self) -> tuple[Sequence[tuple[Any, ...]], ...]:
        return self.entries, self.gone, self.events, self.records

    def __bool__(self) -> bool:
        return any(self.values())


def key(kind: str, name: Any) -> tuple[str, str]:
    """Return an entry's name and kind in the file.

    A session is stored under its purse's name: both entries then mostly lie on one page.
    """
    if kind == "counts":
        return "\t".join(map(str, name)), kind
    return (f"session:{name}" if kind == "sessions" else name), kind


def _name_of(kind: str, stored: str) -> Any:
    """Return the ledger's name of an entry: the opposite of :func:`key`."""
    if kind == "counts":
        hour, agent, tier = stored.split("\t", 2)
        return HourKey(int(hour), agent, tier)
    return stored.removeprefix("session:") if kind == "sessions" else stored


def entry(kind: str, name: Any, value: Any) -> Entry:
    """Return a row's entry. Raises ``TypeError`` for a value that JSON can't hold."""
    content = _session(value) if kind == "sessions" else value
    return *key(kind, name), orjson.dumps(content, default=RollingHour.buckets).decode()


def contents(entries: Iterable[Entry]) -> tuple[Contents, list[tuple[str, str]]]:
    """Read entries into values; return these, and name and kind of the rows that make no sense."""
    by_kind: dict[str, list[tuple[Any, Any]]] = defaultdict(list)
    odd: list[tuple[str, str]] = []
    for stored, kind, content in entries:
        if kind.startswith(ODD):
            continue
        try:
            name = _name_of(kind, stored)
            by_kind[kind].append((name, _READ[kind](name, orjson.loads(content))))
        except (ValueError, TypeError, LookupError, AttributeError):
            odd.append((stored, kind))
    by_kind["sessions"].sort(key=lambda row: row[1].last_seen)
    by_kind["purses"].sort(key=lambda row: row[1].touched)
    by_kind["counts"].sort(key=lambda row: row[0].hour)
    return by_kind, odd


def event(number: int, event: Mapping[str, Any]) -> tuple[Any, ...]:
    """Return an event's row.

    Raises ``TypeError`` if JSON can't hold the event, ``KeyError`` if it lacks a field.
    """
    return number, event["time"], event["kind"], event["session"], orjson.dumps(event).decode()


def _session(state: SessionState) -> Any:
    """Return a session's content without its token counts, which its purse has."""
    content = {
        "turns": state.turns,
        "tier": state.tier,
        "sticky": state.sticky,
        "first_seen": state.first_seen,
        "last_seen": state.last_seen,
    }
    return {**content, "replies": state.replies} if state.replies else content


def _session_of(name: str, content: dict[str, Any]) -> SessionState:
    content.pop("window", None)  # version 0.1 stored turns here, for loop detection
    content["sticky"] = {model: Sticky(**fields) for model, fields in content["sticky"].items()}
    _add(content["turns"], content["first_seen"], content["last_seen"])
    content["replies"] = tuple(content.get("replies", ()))
    return SessionState(name, **content)


def _purse_of(content: dict[str, Any]) -> Purse:
    purse = Purse(**content)
    _add(purse.touched, *purse.used.values())
    return purse


def _breaker_of(content: dict[str, Any]) -> BreakerState:
    _add(*content.values())
    return BreakerState(**content)


def _add(*numbers: Any) -> None:
    """Raise ``TypeError`` if one of ``numbers`` is none."""
    sum(numbers)


# By kind: the function that makes a value of the ledger's name and the parsed content.
_READ: Final[Mapping[str, Callable[[Any, Any], Any]]] = {
    "sessions": _session_of,
    "purses": lambda _, content: _purse_of(content),
    "hours": lambda _, content: RollingHour((minute + 0, tokens + 0) for minute, tokens in content),
    "breakers": lambda _, content: _breaker_of(content),
    "counts": lambda _, content: {name: number + 0 for name, number in content.items()},
}
