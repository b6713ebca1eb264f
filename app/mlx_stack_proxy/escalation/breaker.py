"""The circuit breaker: which tiers are skipped for a while, and when they are tried again.

The pattern is Nygard's (*Release It!*): closed, open for a cool-down, then half-open, where one
probe at a time decides. Here "open" is called degraded. Only a server's failures count: a model's
bad replies never degrade its tier. All times are seconds of the wall clock, passed in, because a
breaker's state outlives its process. If that clock is set back, a cool-down whose remaining time
would exceed its length counts as over.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Protocol

from msgspec.structs import replace

from ..settings import DegradeSettings
from ..state.store import ROUNDING, BreakerState

MAX_COOLDOWN_SECONDS = 600.0


HEALTHY = BreakerState()


class TierCall(Protocol):
    """The part of an upstream call that a breaker uses."""

    at: float  # when it began on its tier; infinity: not yet, or over
    probe: bool  # the tier is degraded, and this call decides whether it recovers

    @property
    def tier(self) -> str: ...


class Breakers:
    """The breakers of all tiers."""

    def __init__(self, settings: DegradeSettings) -> None:
        self._settings = settings
        # By tier, only tiers that have failed since they last answered. Read-only for others.
        self.health: dict[str, BreakerState] = {}
        self._probing: set[str] = set()  # tiers on which a probe is running
        self._recovered: dict[str, float] = {}  # by tier, when it last recovered
        self._answered: set[str] = set()  # tiers that have answered in this process
        # Tiers of these that have failed at most once since then and aren't degraded.
        self.proven: frozenset[str] = frozenset()
        self._restarted: set[str] = set()  # recovered, but not answered since (`answers_again`)

    def adapt(self, settings: DegradeSettings) -> None:
        """Use new settings from now on; a degraded tier keeps its cool-down."""
        self._settings = settings

    def __getitem__(self, tier: str) -> BreakerState:
        return self.health.get(tier, HEALTHY)

    def restore(self, health: Mapping[str, BreakerState]) -> None:
        """Adopt the states that the store kept over a restart."""
        self.health.update((tier, state) for tier, state in health.items() if state != HEALTHY)
        self._renew_proven()

    def passed_over(self, now: float) -> dict[str, float]:
        """Return the degraded tiers that requests skip now, with the end of their cool-down."""
        return {
            tier: health.degraded_until
            for tier, health in self.health.items()
            if health.degraded and (now < health.until(now) or tier in self._probing)
        }

    def _renew_proven(self) -> None:
        doubtful = [
            tier for tier, state in self.health.items() if state.failures > 1 or state.degraded
        ]
        self.proven = frozenset(self._answered.difference(doubtful))

    def answers_again(self, tier: str, now: float) -> bool:
        """End the cool-down of a tier whose server was gone and is back; return whether it had one.

        A probe may follow. This happens only once until the tier answers, because a server that
        dies at each call is not better after a restart.
        """
        health = self.health.get(tier)
        if health is None or not health.degraded or tier in self._restarted:
            return False
        self._restarted.add(tier)
        self.health[tier] = replace(health, degraded_until=now)
        return True

    def begin(self, call: TierCall, now: float) -> None:
        """Record that a call begins, and make it the tier's probe if one is due.

        The caller must :meth:`end` the call, after :meth:`failed` or :meth:`succeeded`.
        """
        tier = call.tier
        health = self.health.get(tier)
        is_due = health is not None and health.degraded and now >= health.until(now)
        call.at, call.probe = now, is_due and tier not in self._probing
        if call.probe:
            self._probing.add(tier)

    def end(self, call: TierCall) -> None:
        """Record that the call is over, however it ended; after a probe, another may follow."""
        if call.probe:
            self._probing.discard(call.tier)
        call.at = math.inf

    def failed(self, call: TierCall, now: float) -> bool:
        """Count a server error or a timeout; return whether it degrades the tier (again).

        A call that began before the end of the cool-down, or before the tier recovered, is ignored:
        it is older than the tier's state, or was made because no other tier was left.
        """
        tier = call.tier
        old = self[tier]
        recovered = self._recovered.get(tier, 0.0)
        if call.at < max(old.until(now), recovered if recovered <= now + ROUNDING else 0.0):
            return False
        new = replace(old, failures=old.failures + 1)
        if old.degraded:
            new = self._cooled(new, min(old.cooldown * 2, MAX_COOLDOWN_SECONDS), now)
        elif new.failures >= self._settings.failures:
            new = self._cooled(new, self._settings.cooldown_seconds, now)
        self.health[tier] = new
        self._renew_proven()
        return new.degraded_until != old.degraded_until

    def succeeded(self, tier: str, now: float) -> bool:
        """Record that the tier gave a reply, good or bad; return whether it recovers by that."""
        if tier in self._answered and tier not in self.health:  # the usual case
            return False
        self._answered.add(tier)
        self._restarted.discard(tier)
        old = self.health.pop(tier, None)
        self._renew_proven()
        if old is None or not old.degraded:
            return False
        self._recovered[tier] = now
        return True

    @staticmethod
    def _cooled(health: BreakerState, seconds: float, now: float) -> BreakerState:
        return replace(health, degraded_until=now + seconds, cooldown=seconds)
