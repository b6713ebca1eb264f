"""Translate the ledger's values into rows of the state file, and back.

A session, a purse, a rolling hour and a breaker are each one entry: a name, a kind, and the content
as JSON.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import orjson

from .hourly import HourKey
from .ledger import Purse
from .rolling_hour import RollingHour
from .store import BreakerState, SessionState, Sticky

Entry = tuple[str, str, str]  # name, kind, content
# By kind, (name, value) pairs; sessions and purses by last use, oldest first.
Contents = Mapping[str, list[tuple[str, Any]]]


@dataclass(slots=True)
class Batch:
    """The rows that one transaction writes."""

    # (kind, name in the ledger) of all rows in ``entries`` and ``gone``.
    names: list[tuple[str, str]] = field(default_factory=list)
    entries: list[Entry] = field(default_factory=list)  # each replaces the same name and kind
    gone: list[tuple[str, str]] = field(default_factory=list)  # (name, kind) to delete
    # (number, time, kind, session, the whole event as JSON).
    events: list[tuple[Any, ...]] = field(default_factory=list)
    counts: dict[HourKey, dict[str, float]] = field(default_factory=dict)  # added to the file's

    def __bool__(self) -> bool:
        return bool(self.names or self.events or self.counts)


def key(kind: str, name: str) -> tuple[str, str]:
    """Return an entry's name and kind in the file.

    A session is stored under its purse's name: the two lie side by side, mostly on one page.
    """
    return (f"session:{name}" if kind == "sessions" else name), kind


def entry(kind: str, name: str, value: Any) -> Entry:
    """Return a row's entry. Raises ``TypeError`` for a value that JSON can't hold."""
    content = _session(value) if kind == "sessions" else value
    return *key(kind, name), orjson.dumps(content, default=RollingHour.buckets).decode()


def contents(entries: Iterable[Entry]) -> Contents:
    """Read entries into values.

    Raises ``ValueError``, ``TypeError``, ``LookupError`` or ``AttributeError`` for nonsense.
    """
    found: dict[str, list[tuple[str, Any]]] = defaultdict(list)
    for name, kind, content in entries:
        row = _READ[kind](name, orjson.loads(content))
        found[kind].append((name.removeprefix("session:") if kind == "sessions" else name, row))
    found["sessions"].sort(key=lambda named: named[1].last_seen)
    found["purses"].sort(key=lambda named: named[1].touched)
    return found


def event(number: int, event: Mapping[str, Any]) -> tuple[Any, ...]:
    """Return an event's row.

    Raises ``TypeError`` if JSON can't hold the event, ``KeyError`` if it lacks a field.
    """
    return number, event["time"], event["kind"], event["session"], orjson.dumps(event).decode()


def _session(state: SessionState) -> Any:
    """Return a session's content without its token counts, which its purse has."""
    return {
        "turns": state.turns,
        "tier": state.tier,
        "sticky": state.sticky,
        "first_seen": state.first_seen,
        "last_seen": state.last_seen,
    }


def _session_of(name: str, content: dict[str, Any]) -> SessionState:
    content.pop("window", None)  # version 0.1 stored turns here, for loop detection
    content["sticky"] = {model: Sticky(**one) for model, one in content["sticky"].items()}
    return SessionState(name.removeprefix("session:"), **content)


# By kind: the function that makes a value of an entry's name and parsed content.
_READ: Final[Mapping[str, Callable[[str, Any], Any]]] = {
    "sessions": _session_of,
    "purses": lambda _, content: Purse(**content),
    "hours": lambda _, content: RollingHour((minute, tokens) for minute, tokens in content),
    "breakers": lambda _, content: BreakerState(**content),
}
