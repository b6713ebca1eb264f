"""Events of the process itself: its start, its end, and whether LiteLLM can be reached.

The store keeps them along with the events of requests (docs/observability.md).
"""

from __future__ import annotations

import signal
import time
from typing import Final

from .. import __version__, log
from ..driver.services import Services
from ..state.store import StoreError
from ..telemetry import accounts
from .event_stream import newest_number
from .operations import readiness

# The log's warning at the start, by the tier's state in /ready.
_TOLD_OF_TIERS: Final = {
    "unknown_model": "tiers_without_a_model",
    "unreachable": "tiers_unreachable",
}


def upstream_down(services: Services, why: str) -> None:
    log.get().error("litellm_down", why=why)
    accounts.record_event(services, "upstream_down", {"why": why})


def upstream_up(services: Services, seconds: float) -> None:
    log.get().info("litellm_up", after_seconds=round(seconds, 1))
    accounts.record_event(services, "upstream_up", {"seconds": round(seconds, 1)})


async def started(services: Services) -> None:
    """Keep the event that the process listens, and let a task log what it can't reach.

    The event says ``killed`` if the store has no ``stopped`` event of the process before this one.
    Only SQLite can tell, because no other process shares its file.
    """
    try:
        kinds = ("started", "stopped", "upstream_down", "upstream_up")
        last = {kind: await newest_number(services, kind) for kind in kinds}
        own_file = services.settings.state.backend == "sqlite"
        killed = own_file and last["started"] > last["stopped"]
        was_down = last["upstream_down"] > last["upstream_up"]
    except StoreError as error:
        accounts.store_failed(services, error)
        killed = was_down = False
    accounts.record_event(services, "started", {"version": __version__, "killed": killed})
    if killed:
        accounts.count_alone(services, {"kills": 1})
    services.background.start(_look_around(services, was_down=was_down))


async def _look_around(services: Services, *, was_down: bool) -> None:
    """Log what is unreachable, before a client finds out."""
    try:
        state = await readiness(services)
        if not state["ready"]:
            log.get().warning("not_ready", litellm=state["litellm"], next="mlx-stack-proxy check")
        elif was_down:  # LiteLLM was down when the previous process stopped
            upstream_up(services, 0.0)
        for tier_state, message in _TOLD_OF_TIERS.items() if state["litellm"] == "ok" else ():
            tiers = [name for name, tier in state["tiers"].items() if tier["state"] == tier_state]
            if tiers:
                log.get().warning(message, tiers=tiers, next="mlx-stack-proxy check")
    except Exception as error:
        log.fault("start_fault", error)


async def stopped(services: Services, sig: int | None) -> None:
    """Keep the event that the process ends, and wait until it is written. ``sig``: the signal."""
    seconds = round(time.time() - services.life.started, 1)
    name = signal.Signals(sig).name if sig is not None else ""
    accounts.record_event(services, "stopped", {"signal": name, "seconds": seconds})
    await services.journal.written()
