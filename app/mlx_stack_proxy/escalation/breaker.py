"""Which tiers are taken out for a while, and when they are tried again (the circuit breaker).

The pattern is Nygard's (*Release It!*): closed, open for a cool-down, then half-open, where one
probe at a time decides. Here "open" is called degraded. Only what a server does wrong counts:
a model's bad replies never degrade its tier. All times are seconds of one clock, passed in: that of
the wall, for a state outlives its process. It may be put back; a time ahead of it that can't be is
over.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from ..frozen import frozen
from ..settings import DegradeSettings
from ..state.store import ROUNDING, BreakerState

MAX_COOLDOWN_SECONDS = 600.0


HEALTHY = BreakerState()


@frozen
class TierCall:
    """An upstream call on a tier, begun ``at`` a time. ``probe``: it decides for a degraded one."""

    tier: str
    at: float
    probe: bool


class Breakers:
    """The breakers of all tiers.

    ``health``: of those that have failed since they last answered; only read from outside.
    """

    def __init__(self, settings: DegradeSettings) -> None:
        self._settings = settings
        self.health: dict[str, BreakerState] = {}
        self._probing: set[str] = set()
        self._recovered: dict[str, float] = {}  # when
        self._answered: set[str] = set()
        self._forgiven: set[str] = set()

    def adapt(self, settings: DegradeSettings) -> None:
        """Take other rules, for what comes; what is degraded cools down as it was told."""
        self._settings = settings

    def __getitem__(self, tier: str) -> BreakerState:
        return self.health.get(tier, HEALTHY)

    def restore(self, health: Mapping[str, BreakerState]) -> None:
        """Take over what was known before a restart."""
        self.health.update((t, known) for t, known in health.items() if known != HEALTHY)

    def passed_over(self, now: float) -> dict[str, float]:
        """The tiers that requests go past now, each with the time of its next probe."""
        return {
            tier: health.degraded_until
            for tier, health in self.health.items()
            if health.degraded and (now < health.until(now) or tier in self._probing)
        }

    def proven(self) -> frozenset[str]:
        """The tiers that have answered, have failed at most once since, and aren't degraded."""
        doubtful = [t for t, known in self.health.items() if known.failures > 1 or known.degraded]
        return frozenset(self._answered.difference(doubtful))

    def answers_again(self, tier: str, now: float) -> bool:
        """The tier's server was gone and is back; whether that changes anything.

        What failed was the server that is gone: no failure of it counts any more, and where it took
        the tier out, the cool-down is over and a probe may follow, and another one if that fails.
        Once, until the tier answers: a server that goes at each call is no better for coming back.
        """
        health = self.health.get(tier)
        if health is None or tier in self._forgiven:
            return False
        self._forgiven.add(tier)
        if health.degraded:
            self.health[tier] = replace(health, failures=0, degraded_until=now)
        else:
            del self.health[tier]
            self._recovered[tier] = now
        return True

    def begin(self, tier: str, now: float) -> TierCall:
        """A call on the tier begins. :meth:`end` it, after what came of it has been told."""
        health = self.health.get(tier)
        is_due = health is not None and health.degraded and now >= health.until(now)
        probe = is_due and tier not in self._probing
        if probe:
            self._probing.add(tier)
        return TierCall(tier, now, probe)

    def end(self, call: TierCall) -> None:
        """The call is over, whatever came of it: if it was the probe, another may follow."""
        if call.probe:
            self._probing.discard(call.tier)

    def failed(self, call: TierCall, now: float) -> bool:
        """A server error or a timeout; whether it takes the tier out (again).

        A call that began before the tier was taken out, or came back, says nothing new; one during
        the cool-down was made because no other tier was left, and prolongs nothing.
        """
        tier = call.tier
        old = self[tier]
        recovered = self._recovered.get(tier, 0.0)
        if call.at < max(old.until(now), recovered if recovered <= now + ROUNDING else 0.0):
            return False
        new = replace(old, failures=old.failures + 1)
        if old.degraded:
            if old.failures:  # else its server has just come back: one call may fail
                new = self._cooled(new, min(old.cooldown * 2, MAX_COOLDOWN_SECONDS), now)
        elif new.failures >= self._settings.failures:
            new = self._cooled(new, self._settings.cooldown_seconds, now)
        self.health[tier] = new
        return new.degraded_until != old.degraded_until

    def succeeded(self, tier: str, now: float) -> bool:
        """The tier gave a reply, good or bad; whether that brings it back."""
        self._answered.add(tier)
        self._forgiven.discard(tier)
        old = self.health.pop(tier, None)
        if old is None or not old.degraded:
            return False
        self._recovered[tier] = now
        return True

    @staticmethod
    def _cooled(health: BreakerState, seconds: float, now: float) -> BreakerState:
        return replace(health, degraded_until=now + seconds, cooldown=seconds)
