"""The services that all exchanges share, wired once in ``main.py``."""

from __future__ import annotations

import copy
import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ..engine.model_list import ModelList
from ..engine.pipeline import Stage
from ..engine.upstream import Upstream
from ..escalation.cloud import Cloud
from ..escalation.recovery import Recovery
from ..escalation.tier_queue import TierQueues
from ..escalation.tier_states import TierStates
from ..memory_pressure.probe import MemoryProbe
from ..settings import Settings
from ..telemetry.failure_capture import FailureCapture
from ..telemetry.observers import MakeObserver
from ..telemetry.shared import Shared

if TYPE_CHECKING:
    from ..telemetry.traces import Traces  # imported only if traces are configured
    from .driver import Driver


@dataclass(slots=True, kw_only=True)
class Services(Shared):
    """The shared services. A reload replaces ``settings``, ``stages`` and ``cloud``.

    An exchange takes a copy when it begins (:meth:`in_force`), and uses that copy to its end.
    """

    upstream: Upstream
    models: ModelList
    queues: TierQueues
    stages: Sequence[Stage]
    tier_states: TierStates
    recovery: Recovery
    cloud: Cloud | None
    memory: MemoryProbe
    observers: Sequence[MakeObserver] = ()
    capture: FailureCapture | None = None
    traces: Traces | None = None
    drivers: set[Driver] = field(default_factory=set)  # of the running exchanges
    retired: list[Cloud] = field(default_factory=list)  # replaced; exchanges may still use them
    _in_force: Services | None = None  # the copy since the last change; None: not made yet

    def in_force(self) -> Services:
        """Return a copy that later changes of the settings don't affect."""
        if self._in_force is None:
            self._in_force = copy.copy(self)
        return self._in_force

    def change(self, settings: Settings, stages: Sequence[Stage], cloud: Cloud | None) -> None:
        """Replace the three for all exchanges that begin from now on."""
        self.settings, self.stages, self.cloud = settings, stages, cloud
        self._in_force = None


def upstream_key(settings: Settings) -> str | None:
    """Return our key for LiteLLM from the variable that the settings name, if any."""
    name = settings.upstream.api_key_env
    return os.environ.get(name) or None if name else None
