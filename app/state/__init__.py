"""What outlives an exchange: sessions, token counts, the breakers' state, events."""

from __future__ import annotations

from ..settings import Settings
from .memory import MemoryStore
from .store import Store


class BackendNotAvailable(ValueError):
    """The configured backend isn't there yet."""


def open_store(settings: Settings) -> Store:
    """The store that the settings ask for. Raises :class:`BackendNotAvailable`."""
    backend = settings.state.backend
    if backend != "memory":
        raise BackendNotAvailable(
            f"state.backend: `{backend}` is not available in this version; use `memory`, which "
            "forgets its sessions and counts when the process ends"
        )
    return MemoryStore(
        max_sessions=settings.reliability.loop_detection.max_sessions,
        window_size=settings.reliability.loop_detection.window_size,
        session_ttl=settings.reliability.token_budget.session_ttl_seconds,
    )
