"""What this process knows of its tiers' servers: breakers, and what their errors have taught.

The rules are ``core/breaker.py`` and ``core/ladder.py``; here they meet the clock, the store, the
metrics and the log.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from .. import log
from ..core.breaker import Breakers, BreakerState
from ..core.ladder import TierView
from ..core.verdicts import Rejected, UpstreamFailed, Verdict
from ..settings import Settings
from ..state.store import Store

_COUNTED = ("server_error", "timeout")


class TierStates:
    """``clock``: seconds since the epoch, for a breaker's state outlives the process."""

    def __init__(self, settings: Settings, store: Store, clock: Callable[[], float]) -> None:
        self._tiers = settings.tiers
        self._store = store
        self._clock = clock
        self._breakers = Breakers(settings.reliability.escalation.degrade)
        self._windows: dict[str, int] = {}
        self._lacks: dict[str, frozenset[str]] = {}

    async def restore(self) -> None:
        """Take over the breakers of the process before. Raises ``StoreError``."""
        known = await self._store.breakers()
        self._breakers.restore({t: state for t, state in known.items() if t in self._tiers})

    def view(self) -> TierView:
        """What is known now, for the rules."""
        return TierView(self._breakers.passed_over(self._clock()), self._windows, self._lacks)

    def __getitem__(self, tier: str) -> BreakerState:
        return self._breakers[tier]

    def begin(self, tier: str) -> bool:
        """A call on the tier begins; True: :meth:`end_probe` is to be called at its end."""
        return self._breakers.begin(tier)

    def end_probe(self, tier: str) -> None:
        self._breakers.end_probe(tier)

    async def note(self, tier: str, verdict: Verdict | None) -> dict[str, Any] | None:
        """Learn from how a call ended; the event that it makes, if any. May raise StoreError."""
        if tier not in self._tiers or isinstance(verdict, Rejected):
            return None  # the end of this process says nothing about the tier
        if not isinstance(verdict, UpstreamFailed):
            return await self._succeeded(tier)
        self._learn(tier, verdict)
        counts = verdict.reason in _COUNTED and not (verdict.refused or verdict.client_fault)
        if not counts or verdict.lacks:
            return None
        degraded = self._breakers.failed(tier, self._clock())
        state = self._breakers[tier]
        await self._store.save_breaker(tier, state)
        if not degraded:
            return None
        log.get().warning("tier_degraded", tier=tier, seconds=state.cooldown, after=state.failures)
        return {"kind": "tier_degraded", "detail": {"seconds": state.cooldown}}

    async def _succeeded(self, tier: str) -> dict[str, Any] | None:
        known = self._breakers[tier] != BreakerState()
        recovered = self._breakers.succeeded(tier)
        if known:
            await self._store.save_breaker(tier, BreakerState())
        if not recovered:
            return None
        log.get().info("tier_recovered", tier=tier)
        return {"kind": "tier_recovered", "detail": {}}

    def _learn(self, tier: str, verdict: UpstreamFailed) -> None:
        if verdict.window is not None:
            self._windows[tier] = min(verdict.window, self._windows.get(tier, verdict.window))
        if verdict.lacks:
            self._lacks[tier] = self._lacks.get(tier, frozenset()) | {verdict.lacks}

    def degraded(self) -> Mapping[str, bool]:
        return {tier: self._breakers[tier].degraded for tier in self._tiers}
