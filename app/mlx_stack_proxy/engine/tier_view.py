"""A snapshot of the tiers' states, and whether a tier can take a request (pure rules)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from ..settings import Settings
from ..wire.strict_template import is_image
from .exchange import Exchange
from .request import Request

ABILITIES = ("tools", "images", "response_format")


class TierView(Struct, frozen=True):
    """The tiers' states at one moment, apart from their settings, as seen by one request."""

    # Degraded tiers that requests skip, with the end of their cool-down (seconds since 1970).
    passed_over: Mapping[str, float] = {}
    windows: Mapping[str, int] = {}  # in tokens, learned from errors
    # Features (of `ABILITIES`) that a tier lacks, learned from errors.
    lacks: Mapping[str, frozenset[str]] = {}
    # Tiers that this request may not use now: their budget or the cloud's cap is used up, or their
    # queue is full and the request should not wait.
    closed: frozenset[str] = frozenset()
    # Tiers that have answered, failed at most once since, and aren't degraded.
    proven: frozenset[str] = frozenset()
    # Whether a tier's last guided reply obeyed its schema; absent if unknown.
    guided: Mapping[str, bool] = {}
    # Tiers whose chat template accepts system messages and images in few places, by their errors.
    strict: frozenset[str] = frozenset()
    # Set when an exchange begins, for the stages that choose its first tier.
    sticky: str | None = None  # the tier to which the session was escalated before
    over_budget: bool = False  # a budget is used up, and ``policy: escalate`` wants a cheaper tier
    over_budget_on: frozenset[str] = frozenset()  # the same for tiers whose own budget is used up
    memory_is_short: bool = False  # and has been for long enough

    def without(self, tiers: Iterable[str]) -> TierView:
        """Return this view with more tiers closed."""
        return replace(self, closed=self.closed.union(tiers))


def may_escalate(exchange: Exchange, settings: Settings) -> bool:
    stays = exchange.start is not None and exchange.start.stays
    asked = exchange.request.controls.escalation
    return settings.reliability.escalation.enabled and asked and not stays


def window(tier: str, settings: Settings, view: TierView) -> int:
    """Return a tier's context window in tokens: the setting, or a smaller one from its errors."""
    tier_settings = settings.tiers.get(tier)
    configured = tier_settings.context_window if tier_settings is not None else 0
    return min(configured, view.windows.get(tier, configured))


def fits(tier: str, request: Request, settings: Settings, view: TierView) -> bool:
    """Whether a tier has the window and the features that a request needs."""
    return has_room(tier, request, settings, view) and able(tier, request, settings, view)


def has_room(tier: str, request: Request, settings: Settings, view: TierView) -> bool:
    """Whether the prompt, as estimated, fits into the tier's context window."""
    return request.is_within(window(tier, settings, view))


def needs(request: Request) -> frozenset[str]:
    """Return the features (of :data:`ABILITIES`) that a request needs."""
    abilities = set()
    if request.tools and request.body.get("tool_choice") != "none":
        abilities.add("tools")
    if request.body.get("response_format"):
        abilities.add("response_format")
    if any(map(_has_image, request.body["messages"])):
        abilities.add("images")
    return frozenset(abilities)


def able(tier: str, request: Request, settings: Settings, view: TierView) -> bool:
    """Whether a tier has the features that a request needs."""
    config = settings.tiers[tier]
    learned = view.lacks.get(tier)
    if not learned and False not in (config.tools, config.images, config.response_format):
        return True  # the usual case, decided without reading the request
    lacks = {ability for ability in ABILITIES if getattr(config, ability) is False}
    lacks |= {ability for ability in learned or () if getattr(config, ability) == "auto"}
    return needs(request).isdisjoint(lacks)


def _has_image(message: Mapping[str, Any]) -> bool:
    content = message.get("content")
    return isinstance(content, list) and any(map(is_image, content))
