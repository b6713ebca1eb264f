"""What the store keeps, as rows of JSON, and back. Rows that make no sense are ValueErrors.

The first of a row is its name; one that has nothing else says that what had the name is gone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import orjson

from ..core.breaker import BreakerState
from .ledger import Purse
from .rolling_hour import RollingHour
from .store import SessionState, Sticky


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


def session(name: str, state: SessionState) -> tuple[Any, ...]:
    """A session: its window in hexadecimal digits."""
    sticky = {model: (entry.tier, entry.until) for model, entry in state.sticky.items()}
    window = list(map(bytes.hex, state.window))
    return name, state.turns, state.tier, window, sticky, state.first_seen, state.last_seen


def session_of(row: Sequence[Any]) -> SessionState:
    """The session of a row, without its counts."""
    session, turns, tier, window, sticky, first_seen, last_seen = row
    return SessionState(
        session,
        turns=turns,
        tier=tier,
        window=tuple(map(bytes.fromhex, window)),
        sticky={model: Sticky(*entry) for model, entry in sticky.items()},
        first_seen=first_seen,
        last_seen=last_seen,
    )


def purse(name: str, purse: Purse) -> tuple[Any, ...]:
    return name, purse.used, purse.touched


def purse_of(row: Sequence[Any]) -> tuple[str, Purse]:
    name, used, touched = row
    return name, Purse(used, touched)


def hour(scope: str, hour: RollingHour) -> tuple[Any, ...]:
    """All but its last minute, which alone changes with most exchanges."""
    return scope, hour.buckets()[:-1]


def minute(scope: str, hour: RollingHour) -> tuple[Any, ...]:
    """An hour's last minute, if it has one."""
    return scope, *hour.buckets()[-1:]


def hour_of(row: Sequence[Any], minute: Sequence[Any]) -> tuple[str, RollingHour]:
    """The hour of both; of the second the name doesn't count."""
    scope, buckets = row
    return scope, RollingHour((at, tokens) for at, tokens in (*buckets, *minute[1:]))


def breaker(tier: str, state: BreakerState) -> tuple[Any, ...]:
    return tier, state.failures, state.degraded_until, state.cooldown


def breaker_of(row: Sequence[Any]) -> tuple[str, BreakerState]:
    tier, *state = row
    return tier, BreakerState(*state)


def event(number: int, event: Mapping[str, Any]) -> tuple[Any, ...]:
    """Raises ``TypeError`` for what is no JSON."""
    body = orjson.dumps(event).decode()
    return number, event["time"], event["kind"], event["session"], body


def event_of(body: str) -> Mapping[str, Any]:
    found: Mapping[str, Any] = orjson.loads(body)
    return found
