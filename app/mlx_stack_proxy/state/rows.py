"""What the store keeps, as rows of the state file, and back.

A session, a purse, an hour and a breaker are entries: a name, a kind, and the content as JSON.
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
# By kind the names and rows; sessions and purses by last use, oldest first.
Contents = Mapping[str, list[tuple[str, Any]]]


@dataclass(slots=True)
class Batch:
    """What one transaction writes.

    ``names``: what it is about, by kind, as the ledger names it. ``entries``: in place of those of
    the same names and kinds. ``gone``: names and kinds to delete. ``events``: number, time, kind,
    session, and all of it as JSON. ``counts``: to be added to those that are stored.
    """

    names: list[tuple[str, str]] = field(default_factory=list)
    entries: list[Entry] = field(default_factory=list)
    gone: list[tuple[str, str]] = field(default_factory=list)
    events: list[tuple[Any, ...]] = field(default_factory=list)
    counts: dict[HourKey, dict[str, float]] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.names or self.events or self.counts)


def key(kind: str, name: str) -> tuple[str, str]:
    """Name and kind in the file. A session lies beside its purse there, mostly on the same page."""
    return (f"session:{name}" if kind == "sessions" else name), kind


def entry(kind: str, name: str, value: Any) -> Entry:
    """Raises ``TypeError`` for what is no JSON."""
    content = _session(value) if kind == "sessions" else value
    return *key(kind, name), orjson.dumps(content, default=RollingHour.buckets).decode()


def contents(entries: Iterable[Entry]) -> Contents:
    """Nonsense raises ``ValueError``, ``TypeError``, ``LookupError`` or ``AttributeError``."""
    found: dict[str, list[tuple[str, Any]]] = defaultdict(list)
    for name, kind, content in entries:
        row = _READ[kind](name, orjson.loads(content))
        found[kind].append((name.removeprefix("session:") if kind == "sessions" else name, row))
    found["sessions"].sort(key=lambda named: named[1].last_seen)
    found["purses"].sort(key=lambda named: named[1].touched)
    return found


def event(number: int, event: Mapping[str, Any]) -> tuple[Any, ...]:
    """Raises ``TypeError`` for what is no JSON, ``KeyError`` for what lacks something."""
    return number, event["time"], event["kind"], event["session"], orjson.dumps(event).decode()


def _session(state: SessionState) -> Any:
    """Without its counts, which its purse has."""
    return {
        "turns": state.turns,
        "tier": state.tier,
        "sticky": state.sticky,
        "first_seen": state.first_seen,
        "last_seen": state.last_seen,
    }


def _session_of(name: str, content: dict[str, Any]) -> SessionState:
    content.pop("window", None)  # 0.1 kept turns for loop detection
    content["sticky"] = {model: Sticky(**one) for model, one in content["sticky"].items()}
    return SessionState(name.removeprefix("session:"), **content)


# By kind: what is made of a name and what the content says.
_READ: Final[Mapping[str, Callable[[str, Any], Any]]] = {
    "sessions": _session_of,
    "purses": lambda _, content: Purse(**content),
    "hours": lambda _, content: RollingHour((minute, tokens) for minute, tokens in content),
    "breakers": lambda _, content: BreakerState(**content),
}
