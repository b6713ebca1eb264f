"""The state that outlives an exchange: sessions, token counts, breakers' states, events."""

from __future__ import annotations

import time
from collections.abc import Callable

from ..settings import Settings
from .sqlite import SqliteStore
from .store import Sizes, Store

_DAY = 86_400.0
MAX_RECORDS = 10_000
MAX_EVENTS_IN_MEMORY = 10_000  # with `state.backend: memory`, whatever `events_max` says


def open_store(settings: Settings, clock: Callable[[], float] = time.time) -> Store:
    """Return the store that ``settings`` ask for; the caller opens it.

    ``clock``: seconds since the epoch, by which the store's housekeeping forgets old rows.
    """
    state, most_events = settings.state, settings.observability.events_max
    if state.backend == "memory":
        most_events = min(most_events, MAX_EVENTS_IN_MEMORY)
    sizes = Sizes(
        max_sessions=settings.reliability.loop_detection.max_sessions,
        session_ttl=settings.reliability.token_budget.session_ttl_seconds,
        events_ttl=settings.observability.events_retention_days * _DAY,
        max_events=most_events,
        max_records=min(most_events, MAX_RECORDS),
    )
    if state.backend != "redis":
        return SqliteStore(state.path if state.backend == "sqlite" else None, sizes, clock)
    from .redis import RedisStore

    assert state.redis_url is not None  # the settings' own check requires it
    return RedisStore(state.redis_url, sizes, clock)
