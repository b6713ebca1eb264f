"""What all exchanges share, wired once in ``main.py``."""

from __future__ import annotations

import copy
import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from ..escalation.cloud import Cloud
from ..escalation.recovery import Recovery
from ..escalation.tier_queue import TierQueues
from ..escalation.tier_states import TierStates
from ..memory_pressure.probe import MemoryProbe
from ..settings import Settings
from ..state.store import Store
from ..telemetry.failure_capture import FailureCapture
from ..telemetry.journal import Journal
from ..telemetry.metrics import Metrics
from ..telemetry.observers import MakeObserver, Observer
from ..telemetry.token_rates import TokenRates, Writing
from ..token_budget.prompt_costs import PromptCosts
from .background import Background
from .exchange import Exchange
from .model_list import ModelList
from .pipeline import Stage
from .rate_limit import RateLimit
from .upstream import Upstream


class Traces(Protocol):
    """What ``traces.py`` has; it is imported only where it is wanted."""

    name: str

    def of(self, exchange: Exchange) -> Observer: ...

    async def close(self) -> None: ...


class Notifies(Protocol):
    """What ``server/notifications.py`` has."""

    def told(self, event: Mapping[str, Any]) -> None: ...

    def start(self, services: Services) -> None: ...

    async def close(self) -> None: ...


class RunningExchange(Protocol):
    """A chat completion that is on its way."""

    def end(self) -> None:
        """The process ends: the client is to be told."""

    def writing(self) -> Writing | None:
        """The upstream call that runs, if one does."""


@dataclass(slots=True)
class Life:
    """The process's own. ``running``: requests on their way; ``followers``: streams of events;
    ``started``: by the wall clock.

    ``bad_settings``: what is wrong with the configuration that was given last, if it can't be used.
    ``restart_due``: settings that have changed and wait for a restart. ``pressure_since``: when the
    memory's pressure came to where it is, by the wall clock.
    """

    stopping: bool = False
    running: int = 0
    followers: int = 0
    started: float = field(default_factory=time.time)
    bad_settings: list[str] = field(default_factory=list)
    restart_due: list[str] = field(default_factory=list)
    pressure_since: float = field(default_factory=time.time)


@dataclass(slots=True)
class Services:
    """``settings``, ``stages`` and ``cloud`` are replaced when the settings change.

    An exchange works with :meth:`in_force` of its beginning, and so with one set of them.
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
    prompt_costs: PromptCosts = field(default_factory=PromptCosts)
    exchanges: set[RunningExchange] = field(default_factory=set)
    rate_limit: RateLimit = field(default_factory=RateLimit)
    retired: list[Cloud] = field(default_factory=list)  # exchanges may still use them
    _in_force: Services | None = None

    def in_force(self) -> Services:
        """These as they are now, for whom no later change of the settings may reach."""
        if self._in_force is None:
            self._in_force = copy.copy(self)
        return self._in_force

    def change(self, settings: Settings, stages: Sequence[Stage], cloud: Cloud | None) -> None:
        """What begins from now on works with these."""
        self.settings, self.stages, self.cloud = settings, stages, cloud
        self._in_force = None


def upstream_key(settings: Settings) -> str | None:
    """The key that we send to LiteLLM, from the environment variable that the settings name."""
    name = settings.upstream.api_key_env
    return os.environ.get(name) or None if name else None
