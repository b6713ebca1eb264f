"""Watches the servers of failing tiers, so that a restarted server needs no cool-down.

From a tier's first failure on, a task polls its ``health_url`` once a second; a tier without one is
not watched. If the server refuses connections and later answers, it was restarted, and the tier's
breaker ends its cool-down. A server that answers all along while its calls fail, or that hangs and
recovers, has to cool down: nothing suggests that its next call would succeed.
"""

from __future__ import annotations

import asyncio
import contextvars
from typing import Final

from .. import log
from ..engine.upstream import HEALTH_SECONDS, Upstream
from ..settings import Settings
from ..tasks import Background
from .breaker import HEALTHY
from .tier_states import TierStates

# Between two polls. A judgement: short compared with a server's start, and no load for the server
# (HAProxy checks every 2 s by default).
INTERVAL_SECONDS: Final = 1.0


class Recovery:
    """The watching tasks, one for each failing tier that has a ``health_url``.

    A task starts at the tier's first failure, because when its breaker opens, its server may
    already be back.
    """

    def __init__(self, settings: Settings, upstream: Upstream, states: TierStates) -> None:
        self._tiers = settings.tiers
        self._upstream = upstream
        self._states = states
        self._background = Background()
        self._closed = False
        self.watched: set[str] = set()  # the tiers that are being watched

    def adapt(self, settings: Settings) -> None:
        """Use other tiers from now on."""
        self._tiers = settings.tiers
        self.watch_all()

    def watch_all(self) -> None:
        """Watch the servers of all failing tiers."""
        for tier in self._states.failing():
            self.watch(tier)

    def watch(self, tier: str) -> None:
        """Watch the server of a tier on which a call has failed, until the tier is healthy."""
        is_needed = self._states[tier] is not HEALTHY and self._url(tier) is not None
        if not is_needed or tier in self.watched or self._closed:
            return
        self.watched.add(tier)
        # The task belongs to no request; in an empty context its log lines name none.
        contextvars.Context().run(self._background.start, self._watch(tier))

    async def close(self) -> None:
        self._closed = True
        await self._background.close()

    def _url(self, tier: str) -> str | None:
        tier_settings = self._tiers.get(tier)
        return tier_settings.health_url if tier_settings is not None else None

    async def _watch(self, tier: str) -> None:
        gone = False  # the server has refused a connection
        try:
            while (url := self._url(tier)) is not None and self._states[tier] is not HEALTHY:
                health = await self._upstream.health(url, HEALTH_SECONDS)
                if health == "well":
                    if gone:
                        self._states.answers_again(tier)
                    if gone or not self._states.cooling(tier):
                        return  # calls fail although it answers, or the next request is the probe
                gone = gone or health == "gone"
                await asyncio.sleep(INTERVAL_SECONDS)
        except Exception as error:
            log.fault("comeback_fault", error)
        finally:
            self.watched.discard(tier)
