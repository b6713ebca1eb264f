"""Watches the servers of failing tiers, so that one that was restarted need not cool down.

Only where a tier has a ``health_url``, and only a server that was seen gone, taking no connection:
one that answers while its calls fail, or hangs and comes to, is not any better for it.
"""

from __future__ import annotations

import asyncio
import contextvars
from typing import Final

from ..engine.background import Background
from ..engine.upstream import HEALTH_SECONDS, Upstream
from ..settings import Settings
from ..telemetry import log
from .breaker import HEALTHY
from .tier_states import TierStates

# Between two questions. Judgement: nothing beside a server's start, and nothing to the server
# (HAProxy's checks: each 2 s by default).
INTERVAL_SECONDS: Final = 1.0


class Recovery:
    """``watched``: the tiers whose servers are asked now; a task for each.

    They are from a tier's first failure on: when the breaker opens the server may be back already.
    """

    def __init__(self, settings: Settings, upstream: Upstream, states: TierStates) -> None:
        self._tiers = settings.tiers
        self._upstream = upstream
        self._states = states
        self._background = Background()
        self._closed = False
        self.watched: set[str] = set()

    def adapt(self, settings: Settings) -> None:
        """Take other tiers."""
        self._tiers = settings.tiers
        self.watch_all()

    def watch_all(self) -> None:
        """Ask the servers of all tiers that fail."""
        for tier in self._states.failing():
            self.watch(tier)

    def watch(self, tier: str) -> None:
        """A call on the tier has failed: ask its server, until it is well."""
        if self._states[tier] is HEALTHY or tier in self.watched or self._closed:
            return
        if self._url(tier) is None:
            return
        self.watched.add(tier)
        # It is no request's: its log lines are to name none.
        contextvars.Context().run(self._background.start, self._watch(tier))

    async def close(self) -> None:
        self._closed = True
        await self._background.close()

    def _url(self, tier: str) -> str | None:
        known = self._tiers.get(tier)
        return known.health_url if known is not None else None

    async def _watch(self, tier: str) -> None:
        try:
            await self._wait_for(tier)
        except Exception as error:
            log.fault("comeback_fault", error)
        finally:
            self.watched.discard(tier)

    async def _wait_for(self, tier: str) -> None:
        gone = ""  # the URL at which nobody was
        while (url := self._url(tier)) is not None and self._states[tier] is not HEALTHY:
            health = await self._upstream.health(url, HEALTH_SECONDS)
            if health == "gone":
                gone = url
            elif health == "well":
                if gone == url:
                    self._states.answers_again(tier)
                gone = ""
            failures = self._states[tier].failures
            await asyncio.sleep(INTERVAL_SECONDS)
            as_before = self._states[tier].failures == failures
            if health == "well" and as_before and not self._states.cooling(tier):
                return  # calls failed, not the server; or it is for a probe to tell
