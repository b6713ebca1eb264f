"""Which tier an exchange starts on, and which comes next: forward only (docs/escalation.md).

The route (``tiers.py``) names the tiers that the exchange may use. These pure functions choose from
it by the request's size and needs, by what is known of the tiers (:class:`TierView`), and by memory
pressure and budgets. ``next_step.py`` decides whether a failed attempt leads to another tier at
all.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field, replace
from typing import Any

from ..engine.exchange import Exchange
from ..engine.request import Request
from ..engine.steps import Start
from ..frozen import frozen
from ..settings import Settings

ABILITIES = ("tools", "images", "response_format")


@frozen
class TierView:
    """What is known of the tiers beside their settings, at one moment."""

    # Degraded tiers that requests skip, with the end of their cool-down (s since the epoch).
    passed_over: Mapping[str, float] = field(default_factory=dict)
    windows: Mapping[str, int] = field(default_factory=dict)  # in tokens, learned from errors
    # Abilities (of `ABILITIES`) that a tier lacks, learned from errors.
    lacks: Mapping[str, frozenset[str]] = field(default_factory=dict)
    # Tiers that this request may not enter now: their budget or the cloud's cap is used up, or
    # their queue is full and the request should not wait for them.
    closed: frozenset[str] = frozenset()
    # Tiers that have answered, failed at most once since, and aren't degraded.
    proven: frozenset[str] = frozenset()
    # Whether a tier's last guided reply obeyed its schema; tiers of which nothing is known are left
    # out.
    guided: Mapping[str, bool] = field(default_factory=dict)

    def without(self, tiers: Iterable[str]) -> TierView:
        """Return the same view with these tiers closed, too."""
        return replace(self, closed=self.closed.union(tiers))


def start(exchange: Exchange, settings: Settings, view: TierView, sticky: str | None) -> Start:
    """Return the tier to start on. ``sticky``: the tier its session was escalated to, if any.

    If all tiers are closed or degraded, the exchange starts on one of them all the same.
    """
    tiers = exchange.route.tiers
    if not tiers or not may_escalate(exchange, settings):
        return Start(exchange.route.first)
    candidates = tiers
    if sticky in tiers and exchange.controls.tier is None:
        candidates = tiers[tiers.index(sticky) :]
    first = candidates[0]
    is_up = first not in view.passed_over and first not in view.closed
    if is_up and fits(first, exchange.request, settings, view):
        return Start(first)  # the usual case, without a look at the other tiers
    fitting = [t for t in candidates if fits(t, exchange.request, settings, view)]
    # From the sticky tier on, no tier that fits is up: take the tiers before it as well.
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


def relieved(
    exchange: Exchange, settings: Settings, view: TierView, chosen: Start, *, sustained: bool
) -> Start | None:
    """Return the start that relieves this machine of a complex request while memory is short.

    It is on the first tier after ``chosen``'s that is not on this machine. ``sustained``: memory
    has been short for long enough. None: it hasn't, the request isn't complex, the client named a
    tier by header or forbids escalation, or no such tier can take the request now.
    """
    if not sustained or not _is_complex(exchange.request, settings):
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


def _open(tiers: Sequence[str], settings: Settings, view: TierView) -> list[str]:
    """Return the tiers that aren't closed, or all of them if none is left.

    If the first tier is closed, cloud tiers are left out: the tokens that a budget saves must not
    be spent on the cloud.
    """
    open_tiers = [tier for tier in tiers if tier not in view.closed]
    if open_tiers and open_tiers[0] != tiers[0]:
        open_tiers = [tier for tier in open_tiers if settings.tiers[tier].local]
    return open_tiers or list(tiers)


def downgraded(exchange: Exchange, settings: Settings, view: TierView) -> Start | None:
    """Return the start of a session that has used up its budget, under ``policy: escalate``.

    It is ``downgrade_tier``, or the next cheapest tier that can take the request; the caller keeps
    the exchange there. None: the client named a tier by header, or no cheaper tier can take the
    request: each one is too small, degraded, without budget, or in the cloud that the request may
    not enter.
    """
    if exchange.controls.tier is not None or not exchange.route.tiers:
        return None
    first = exchange.route.first
    for tier in exchange.route.cheaper:
        forbidden_cloud = not settings.tiers[tier].local and tier not in exchange.route.tiers
        unusable = forbidden_cloud or tier in view.passed_over or tier in view.closed
        if not unusable and fits(tier, exchange.request, settings, view):
            return Start(tier, "budget_exceeded" if tier != first else "")
    return None


def following(
    exchange: Exchange, settings: Settings, view: TierView, *, local: bool = False
) -> list[str]:
    """Return the tiers after the present one that could take the request, in order.

    Closed tiers are left out, and degraded ones too, unless all are degraded. ``local``: only tiers
    on this machine.
    """
    tiers = exchange.route.tiers
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
    """Return the next tier whose context window is larger than the present tier's.

    ``named_window``: the present tier's window in tokens, as its error names it; None: the setting
    counts.
    """
    configured = window(exchange.tier, settings, TierView())
    present = min(configured, named_window or configured)
    later = following(exchange, settings, view)
    return next((tier for tier in later if window(tier, settings, view) > present), None)


def may_escalate(exchange: Exchange, settings: Settings) -> bool:
    stays = exchange.start is not None and exchange.start.stays
    return settings.reliability.escalation.enabled and exchange.controls.escalation and not stays


def window(tier: str, settings: Settings, view: TierView) -> int:
    """Return a tier's context window in tokens: the setting, or what its errors said if smaller."""
    tier_settings = settings.tiers.get(tier)
    configured = tier_settings.context_window if tier_settings is not None else 0
    return min(configured, view.windows.get(tier, configured))


def fits(tier: str, request: Request, settings: Settings, view: TierView) -> bool:
    """Whether a tier has the window and the abilities that a request needs."""
    return has_room(tier, request, settings, view) and able(tier, request, settings, view)


def has_room(tier: str, request: Request, settings: Settings, view: TierView) -> bool:
    """Whether the prompt, as estimated, fits into the tier's context window."""
    return request.is_within(window(tier, settings, view))


def needs(request: Request) -> frozenset[str]:
    """Return the abilities (of :data:`ABILITIES`) that a request asks of a model."""
    abilities = set()
    if request.tools and request.body.get("tool_choice") != "none":
        abilities.add("tools")
    if request.body.get("response_format"):
        abilities.add("response_format")
    if any(map(_has_image, request.body["messages"])):
        abilities.add("images")
    return frozenset(abilities)


def able(tier: str, request: Request, settings: Settings, view: TierView) -> bool:
    """Whether a tier has the abilities that a request needs."""
    config = settings.tiers[tier]
    learned = view.lacks.get(tier)
    if not learned and False not in (
        config.tools,
        config.images,
        config.response_format,
    ):
        return True  # the usual case, without a look at the request
    lacks = {ability for ability in ABILITIES if getattr(config, ability) is False}
    lacks |= {ability for ability in learned or () if getattr(config, ability) == "auto"}
    return needs(request).isdisjoint(lacks)


def _has_image(message: Mapping[str, Any]) -> bool:
    content = message.get("content")
    return isinstance(content, list) and any(
        isinstance(part, dict) and part.get("type") in ("image_url", "input_image", "image")
        for part in content
    )


def _nearest(exchange: Exchange, tiers: Sequence[str], settings: Settings, view: TierView) -> Start:
    """Return the start for a request that fits no tier.

    It is the tier with the largest window of those that have the abilities, or else of all.
    """
    request = exchange.request
    candidates = [tier for tier in tiers if able(tier, request, settings, view)] or tiers
    if has_room(candidates[0], request, settings, view):  # no tier has the abilities
        return Start(candidates[0])
    best = max(candidates, key=lambda tier: window(tier, settings, view))
    short = best != tiers[0] and not has_room(tiers[0], request, settings, view)
    return Start(best, "context_overflow" if short else "")
