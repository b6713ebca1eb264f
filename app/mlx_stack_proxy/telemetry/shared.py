"""What all parts share to count, log and keep what happens."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final, Protocol

from ..engine.rate_limit import RateLimit
from ..engine.record import Record
from ..settings import Settings
from ..state.store import Store
from ..tasks import Background
from .journal import Journal
from .metrics import Metrics

RECENT: Final = 1000  # records that a process keeps in memory, those of plain exchanges too


class Notifies(Protocol):
    """The interface of ``server/notifications.py``."""

    def on_event(self, event: Mapping[str, Any]) -> None: ...

    def start(self, services: Any) -> None: ...

    async def close(self) -> None: ...


@dataclass(slots=True)
class ProcessState:
    """The state of the process itself. Times are by the wall clock."""

    stopping: bool = False
    running: int = 0  # requests on their way
    followers: int = 0  # clients that follow the stream of events
    started: float = field(default_factory=time.time)
    # What is wrong with the newest configuration, if it can't be used.
    bad_settings: list[str] = field(default_factory=list)
    store_down_at: float = 0.0  # when it last began to fail, on the event loop's clock
    restart_due: list[str] = field(default_factory=list)  # changed settings that wait for a restart
    # When memory pressure reached its present level.
    pressure_since: float = field(default_factory=time.time)


@dataclass(slots=True, kw_only=True)
class Shared:
    """The part of ``Services`` that needs no exchange."""

    settings: Settings
    store: Store
    journal: Journal
    metrics: Metrics
    wall_clock: Callable[[], float] = time.time
    life: ProcessState = field(default_factory=ProcessState)
    background: Background = field(default_factory=Background)
    notifier: Notifies | None = None
    rate_limit: RateLimit = field(default_factory=RateLimit)
    records: deque[Record] = field(default_factory=partial(deque, maxlen=RECENT))  # the newest
