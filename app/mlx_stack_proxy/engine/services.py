"""The services that all exchanges share, wired once in ``main.py``."""

from __future__ import annotations

import copy
import os
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final, Protocol

from ..escalation.cloud import Cloud
from ..escalation.recovery import Recovery
from ..escalation.tier_queue import TierQueues
from ..escalation.tier_states import TierStates
from ..memory_pressure.probe import MemoryProbe
from ..settings import Settings
from ..state.store import Store
from ..tasks import Background
from ..telemetry.failure_capture import FailureCapture
from ..telemetry.journal import Journal
from ..telemetry.metrics import Metrics
from ..telemetry.observers import MakeObserver, Observer
from ..telemetry.token_rates import TokenRates, Writing
from .exchange import Exchange
from .model_list import ModelList
from .pipeline import Stage
from .rate_limit import RateLimit
from .record import Record
from .upstream import Upstream

RECENT: Final = 1000  # records that a process keeps in memory, those of plain exchanges too


class Traces(Protocol):
    """The interface of ``traces.py``, which is imported only if traces are configured."""

    name: str

    def of(self, exchange: Exchange) -> Observer: ...

    async def close(self) -> None: ...


class Notifies(Protocol):
    """The interface of ``server/notifications.py``."""

    def told(self, event: Mapping[str, Any]) -> None: ...

    def start(self, services: Services) -> None: ...

    async def close(self) -> None: ...


class RunningExchange(Protocol):
    """A chat completion that is on its way (:class:`~.runner.Run`)."""

    def end(self) -> None:
        """End the exchange because the process stops, and tell the client."""

    def writing(self) -> Writing | None:
        """Return tier label, tokens so far and start time of the running call, if any."""


@dataclass(slots=True)
class Life:
    """The state of the process itself. Times are by the wall clock."""

    stopping: bool = False
    running: int = 0  # requests on their way
    followers: int = 0  # clients that follow the stream of events
    started: float = field(default_factory=time.time)
    # What is wrong with the newest configuration, if it can't be used.
    bad_settings: list[str] = field(default_factory=list)
    store_fails: bool = False  # its event is kept, and that it works again is to be told
    restart_due: list[str] = field(default_factory=list)  # changed settings that wait for a restart
    # When memory pressure reached its present level.
    pressure_since: float = field(default_factory=time.time)


@dataclass(slots=True)
class Services:
    """The shared services. A reload replaces ``settings``, ``stages`` and ``cloud``.

    An exchange takes a copy at its beginning (:meth:`in_force`), and keeps the copy's to its end.
    """

    settings: Settings
    upstream: Upstream
    models: ModelList
    queues: TierQueues
    stages: Sequence[Stage]
    store: Store
    journal: Journal
    tier_states: TierStates
    recovery: Recovery
    cloud: Cloud | None
    memory: MemoryProbe
    metrics: Metrics
    wall_clock: Callable[[], float] = time.time
    life: Life = field(default_factory=Life)
    background: Background = field(default_factory=Background)
    observers: Sequence[MakeObserver] = ()
    capture: FailureCapture | None = None
    traces: Traces | None = None
    notifier: Notifies | None = None
    token_rates: TokenRates = field(default_factory=TokenRates)
    exchanges: set[RunningExchange] = field(default_factory=set)  # those on their way
    rate_limit: RateLimit = field(default_factory=RateLimit)
    records: deque[Record] = field(default_factory=partial(deque, maxlen=RECENT))  # the newest
    retired: list[Cloud] = field(default_factory=list)  # replaced; exchanges may still use them
    _in_force: Services | None = None  # the copy since the last change; None: not made yet

    def in_force(self) -> Services:
        """Return a copy that no later change of the settings reaches."""
        if self._in_force is None:
            self._in_force = copy.copy(self)
        return self._in_force

    def change(self, settings: Settings, stages: Sequence[Stage], cloud: Cloud | None) -> None:
        """Replace the three for all exchanges that begin from now on."""
        self.settings, self.stages, self.cloud = settings, stages, cloud
        self._in_force = None


def upstream_key(settings: Settings) -> str | None:
    """Return the key that we send to LiteLLM, from the variable that the settings name, if any."""
    name = settings.upstream.api_key_env
    return os.environ.get(name) or None if name else None
