"""What outlives an exchange: sessions, token counts, the breakers' state, events."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypedDict

from ..settings import Settings
from .sqlite import SqliteStore
from .store import Store

_DAY = 86_400.0
MOST_EVENTS_IN_MEMORY = 10_000  # whatever the settings say


class _Sizes(TypedDict):
    max_sessions: int
    session_ttl: float
    events_ttl: float
    max_events: int


def open_store(settings: Settings, clock: Callable[[], float] = time.time) -> Store:
    """The store that the settings ask for; it is still to be opened.

    ``clock``: seconds since the epoch, for what expires in the background.
    """
    sizes = _Sizes(
        max_sessions=settings.reliability.loop_detection.max_sessions,
        session_ttl=settings.reliability.token_budget.session_ttl_seconds,
        events_ttl=settings.observability.events_retention_days * _DAY,
        max_events=settings.observability.events_max,
    )
    state = settings.state
    if state.backend == "memory":
        sizes["max_events"] = min(sizes["max_events"], MOST_EVENTS_IN_MEMORY)
        return SqliteStore(None, **sizes, clock=clock)
    if state.backend == "sqlite":
        return SqliteStore(state.path, **sizes, clock=clock)
    from .redis import RedisStore

    assert state.redis_url is not None  # the settings see to it
    return RedisStore(state.redis_url, **sizes, clock=clock)
