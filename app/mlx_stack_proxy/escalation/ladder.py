"""Which tier an exchange starts on, and which comes next: forward only (docs/escalation.md).

The route (``tiers.py``) lists the tiers that the exchange may use. These pure functions choose
among them by the request's size and needs and by the tiers' states (:class:`TierView`).
``next_step.py`` decides whether a failed attempt leads to another tier at all.
"""

from __future__ import annotations

from collections.abc import Sequence

from ..engine.exchange import Exchange
from ..engine.steps import Start, start_on
from ..engine.tier_view import TierView, able, fits, has_room, may_escalate, window
from ..settings import Settings


def start(exchange: Exchange, settings: Settings, view: TierView, sticky: str | None) -> Start:
    """Return the tier to start on. ``sticky``: the tier its session was escalated to, if any.

    If all tiers are closed or degraded, the exchange starts on one of them anyway.
    """
    tiers = exchange.request.route.tiers
    if not tiers or not may_escalate(exchange, settings):
        return start_on(exchange.request.route.first)
    candidates = tiers
    if sticky in tiers and exchange.request.controls.tier is None:
        candidates = tiers[tiers.index(sticky) :]
    first = candidates[0]
    is_up = first not in view.passed_over and first not in view.closed
    if is_up and fits(first, exchange.request, settings, view):
        return start_on(first)  # the usual case, decided without looking at the other tiers
    fitting = [t for t in candidates if fits(t, exchange.request, settings, view)]
    # From the sticky tier on, no fitting tier is up: consider the tiers before it, too.
    if all(tier in view.passed_over or tier in view.closed for tier in fitting):
        fitting = [t for t in tiers if fits(t, exchange.request, settings, view)]
    if not fitting:
        return _nearest(exchange, _open(tiers, settings, view), settings, view)
    reason = ""
    if fitting[0] != first and not has_room(first, exchange.request, settings, view):
        reason = "context_overflow"
    open_tiers = _open(fitting, settings, view)
    if open_tiers[0] != fitting[0]:
        reason = "budget_exceeded"
    fitting = open_tiers
    for tier in fitting:
        if tier not in view.passed_over:
            passed = tier != fitting[0]
            return Start(tier, "tier_degraded" if passed else reason)
    # All are degraded, and one has to be tried: the tier whose cool-down ends first.
    return Start(min(fitting, key=lambda tier: view.passed_over[tier]), reason)


def _open(tiers: Sequence[str], settings: Settings, view: TierView) -> list[str]:
    """Return the tiers that aren't closed, or all of them if none is left.

    If the first tier is closed, cloud tiers are left out: tokens saved by a budget must not be
    spent in the cloud.
    """
    open_tiers = [tier for tier in tiers if tier not in view.closed]
    if open_tiers and open_tiers[0] != tiers[0]:
        open_tiers = [tier for tier in open_tiers if settings.tiers[tier].local]
    return open_tiers or list(tiers)


def following(
    exchange: Exchange, settings: Settings, view: TierView, *, local: bool = False
) -> list[str]:
    """Return the tiers after the current one that can take the request, in order.

    Closed tiers are left out, and so are degraded ones, unless all are degraded. ``local``: only
    tiers on this machine.
    """
    tiers = exchange.request.route.tiers
    if not may_escalate(exchange, settings) or exchange.tier not in tiers:
        return []
    later = [
        tier
        for tier in tiers[tiers.index(exchange.tier) + 1 :]
        if tier not in view.closed
        and fits(tier, exchange.request, settings, view)
        and not (local and not settings.tiers[tier].local)
    ]
    alive = [tier for tier in later if tier not in view.passed_over]
    return alive or later


def larger(
    exchange: Exchange, settings: Settings, view: TierView, named_window: int | None
) -> str | None:
    """Return the next tier whose context window is larger than the current tier's.

    ``named_window``: the current tier's window in tokens, by its error; None: the setting counts.
    """
    configured = window(exchange.tier, settings, TierView())
    present = min(configured, named_window or configured)
    later = following(exchange, settings, view)
    return next((tier for tier in later if window(tier, settings, view) > present), None)


def _nearest(exchange: Exchange, tiers: Sequence[str], settings: Settings, view: TierView) -> Start:
    """Return the start for a request that fits no tier.

    It is the tier with the largest window among those with the features, or else among all.
    """
    request = exchange.request
    candidates = [tier for tier in tiers if able(tier, request, settings, view)] or tiers
    if has_room(candidates[0], request, settings, view):  # no tier has the features
        return Start(candidates[0])
    best = max(candidates, key=lambda tier: window(tier, settings, view))
    short = best != tiers[0] and not has_room(tiers[0], request, settings, view)
    return Start(best, "context_overflow" if short else "")
