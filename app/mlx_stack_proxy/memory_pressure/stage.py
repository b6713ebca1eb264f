"""Moves complex requests off this machine while memory is short (docs/memory-pressure.md)."""

from __future__ import annotations

from ..engine.exchange import Exchange
from ..engine.pipeline import Stage
from ..engine.request import Request
from ..engine.steps import Start
from ..engine.tier_view import TierView, fits, may_escalate
from ..settings import Settings


class MemoryPressure(Stage):
    """Starts a complex request outside this machine while memory has been short for long."""

    name = "memory_pressure"

    def __init__(self, settings: Settings) -> None:
        self._settings = settings

    def admit(self, exchange: Exchange, start: Start, view: TierView) -> Start:
        """Return a start on the first later tier that is not on this machine.

        Return ``start`` if memory isn't short, the request isn't complex, the client named a tier
        by header or forbids escalation, or no such tier can take the request now.
        """
        settings, request, tiers = self._settings, exchange.request, exchange.request.route.tiers
        if not view.memory_is_short or not self._is_complex(request):
            return start
        if exchange.request.controls.tier is not None or not may_escalate(exchange, settings):
            return start
        if start.tier not in tiers or not settings.tiers[start.tier].local:
            return start
        for tier in tiers[tiers.index(start.tier) + 1 :]:
            is_up = tier not in view.passed_over and tier not in view.closed
            if not settings.tiers[tier].local and is_up and fits(tier, request, settings, view):
                return Start(tier, "memory_pressure")
        return start

    def _is_complex(self, request: Request) -> bool:
        rules = self._settings.reliability.memory_pressure
        if not rules.escalate_complex or (rules.complex.tools and not request.tools):
            return False
        return not request.is_within(rules.complex.min_prompt_tokens - 1)
