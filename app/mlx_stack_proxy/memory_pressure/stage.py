"""Relieves this machine of complex requests while memory is short (docs/memory-pressure.md)."""

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
        if not view.memory_is_short:
            return start
        return start_off_machine(exchange, self._settings, view, start) or start


def start_off_machine(
    exchange: Exchange, settings: Settings, view: TierView, chosen: Start
) -> Start | None:
    """Return the start that relieves this machine of a complex request while memory is short.

    It is on the first tier after ``chosen``'s that is not on this machine. None: the request isn't
    complex, the client named a tier by header or forbids escalation, or no such tier can take the
    request now.
    """
    if not _is_complex(exchange.request, settings):
        return None
    tiers = exchange.route.tiers
    if exchange.controls.tier is not None or not may_escalate(exchange, settings):
        return None
    if chosen.tier not in tiers or not settings.tiers[chosen.tier].local:
        return None
    for tier in tiers[tiers.index(chosen.tier) + 1 :]:
        if settings.tiers[tier].local or tier in view.passed_over or tier in view.closed:
            continue
        if fits(tier, exchange.request, settings, view):
            return Start(tier, "memory_pressure")
    return None


def _is_complex(request: Request, settings: Settings) -> bool:
    rules = settings.reliability.memory_pressure
    if not rules.escalate_complex or (rules.complex.tools and not request.tools):
        return False
    return not request.is_within(rules.complex.min_prompt_tokens - 1)
