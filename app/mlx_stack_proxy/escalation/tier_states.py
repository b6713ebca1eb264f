"""What this process knows about its tiers' servers: breakers, and what errors have taught.

``breaker.py`` and ``learned.py`` hold the rules and take every time as an argument. This module
supplies the clock, writes each change to the store's journal and the log, and returns a
:class:`TierView` for ``ladder.py``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from .. import log
from ..engine.outcome import Outcome
from ..engine.request import Request
from ..engine.tier_view import TierView
from ..engine.verdicts import Failure
from ..settings import Settings
from ..state.store import BreakerState, Store
from ..telemetry.journal import Journal
from .breaker import HEALTHY, Breakers, TierCall
from .learned import LearnedLimits

_COUNTED = ("server_error", "timeout")
Event = tuple[str, dict[str, Any]]  # its kind and detail


class TierStates:
    """The states of all tiers, shared by all exchanges.

    ``clock``: seconds since the epoch, because a breaker's state outlives the process.
    """

    def __init__(
        self, settings: Settings, store: Store, journal: Journal, clock: Callable[[], float]
    ) -> None:
        self._tiers = settings.tiers
        self._store = store
        self._journal = journal
        self._clock = clock
        self._breakers = Breakers(settings.reliability.escalation.degrade)
        self._learned = LearnedLimits()
        self._healthy_view = TierView()  # the view while no tier fails or has taught anything

    def adapt(self, settings: Settings) -> None:
        """Use other tiers and rules from now on; a tier's state stays under its name."""
        self._tiers = settings.tiers
        self._breakers.adapt(settings.reliability.escalation.degrade)

    async def restore(self) -> None:
        """Load the breakers from the store. Raises ``StoreError``."""
        states = await self._store.breakers()
        self._breakers.restore(
            {tier: state for tier, state in states.items() if tier in self._tiers}
        )

    def view(self) -> TierView:
        """Return the current states, for the ladder's rules."""
        if not self._breakers.health and self._learned.is_empty:  # the usual case
            proven = self._breakers.proven
            if self._healthy_view.proven is not proven:
                self._healthy_view = TierView(proven=proven)
            return self._healthy_view
        now = self._clock()
        return TierView(
            self._breakers.passed_over(now),
            self._learned.windows(now),
            self._learned.lacks(now),
            proven=self._breakers.proven,
            guided=self._learned.guided(now),
            strict=self._learned.strict(now),
        )

    def note_strict(self, tier: str) -> None:
        """Record that the tier accepts messages only in the form of ``wire/strict_template.py``."""
        self._learned.take_strict(tier, self._clock())

    def __getitem__(self, tier: str) -> BreakerState:
        return self._breakers[tier]

    def begin(self, call: TierCall) -> None:
        """Record that a call on its tier begins; :meth:`end` it after :meth:`note`."""
        self._breakers.begin(call, self._clock())

    def end(self, call: TierCall) -> None:
        self._breakers.end(call)

    def note(
        self, call: TierCall, outcome: Outcome, request: Request, output: int = 0
    ) -> Event | None:
        """Learn from how a call ended; return the event to store, if the tier's state changed.

        ``output``: the tokens that it requested.
        """
        tier, verdict, guided = call.tier, outcome.verdict, outcome.guided
        self._learned.take_guided(tier, guided, self._clock())
        if tier not in self._tiers:
            return None
        if not isinstance(verdict, Failure) or verdict.answered:
            return self._succeeded(tier)
        self._learned.take(tier, verdict, request, self._clock(), output)
        says_nothing_of_its_server = (
            verdict.kind in ("unreachable", "refused") or verdict.fault != "server" or verdict.lacks
        )
        if verdict.reason not in _COUNTED or guided == "refused" or says_nothing_of_its_server:
            return None
        degraded = self._breakers.failed(call, self._clock())
        state = self._breakers[tier]
        self._journal.set_breaker(tier, state)
        if not degraded:
            return None
        log.get().warning("tier_degraded", tier=tier, seconds=state.cooldown, after=state.failures)
        return "tier_degraded", {"seconds": state.cooldown}

    def _succeeded(self, tier: str) -> Event | None:
        if tier in self._breakers.health:
            self._journal.set_breaker(tier, HEALTHY)
        if not self._breakers.succeeded(tier, self._clock()):
            return None
        log.get().info("tier_recovered", tier=tier)
        return "tier_recovered", {}

    def answers_again(self, tier: str) -> None:
        """End the cool-down of a tier whose server was gone and answers again."""
        if self._breakers.answers_again(tier, self._clock()):
            self._journal.set_breaker(tier, self._breakers[tier])
            log.get().info("tier_answers_again", tier=tier)

    def failing(self) -> list[str]:
        """Return the tiers that have failed since they last answered, degraded or not."""
        return list(self._breakers.health)

    def cooling(self, tier: str) -> bool:
        """Whether the tier is degraded and its cool-down is not over."""
        now = self._clock()
        return now < self[tier].until(now)

    def degraded(self) -> Mapping[str, bool]:
        return {tier: self._breakers[tier].degraded for tier in self._tiers}
