"""Which tiers an exchange may use, in order: its route (docs/escalation.md).

The client names a tier, an alias or a LiteLLM model, in the body or by header. The route begins
there and follows the chain forward. It leaves out cloud tiers without the operator's or the
client's consent, and tiers whose model LiteLLM doesn't list. All of this depends only on the
settings and the list; ``ladder.py`` then chooses from the route by the tiers' states.
"""

from __future__ import annotations

from collections.abc import Collection
from fnmatch import fnmatchcase
from functools import lru_cache, partial

from msgspec.structs import replace

from ..engine.request import Route
from ..settings import CLOUD_TIER, Settings
from .cloud import cloud_key

AUTO = "auto"
_KNOWN = 256  # routes that are remembered


class NoSuchTier(ValueError):
    """The client names a tier that doesn't exist, or that this request may not use."""

    def __init__(self, message: str, param: str) -> None:
        self.param = param  # where it names the tier: `model` or the header
        super().__init__(message)


def is_listed(model: str, listed: Collection[str]) -> bool:
    """Whether LiteLLM's list has a model; the list may have wildcards, such as ``openai/*``."""
    return model in listed or any("*" in name and fnmatchcase(model, name) for name in listed)


def named_tier(model: str, settings: Settings) -> str | None:
    """Return the tier that ``model`` means by name, alias or ``auto``, or None."""
    if model in settings.tiers:
        return model
    escalation = settings.reliability.escalation
    if model == AUTO or not model:
        return escalation.chain[0]
    aliases = escalation.aliases
    return aliases.get(model) or next(
        (aliases[name] for name in aliases if "*" in name and fnmatchcase(model, name)), None
    )


def named_by_client(model: str, header_tier: str | None, settings: Settings) -> str | None:
    """Return the tier that the client chose; None if it left the choice to the proxy."""
    choice = model if header_tier is None else header_tier
    if choice == AUTO or not choice:
        return None
    return named_tier(choice, settings) or _tier_of(choice, settings)


def _tier_of(model: str, settings: Settings) -> str | None:
    """Return the first tier with this LiteLLM model: in the chain, or else in the settings."""
    names = (*settings.reliability.escalation.chain, *settings.tiers)
    return next((name for name in names if settings.tiers[name].model == model), None)


def route(
    model: str,
    header_tier: str | None,
    cloud: bool,
    listed: frozenset[str] | None,
    settings: Settings,
) -> Route:
    """Return the route of an exchange.

    ``header_tier``: the tier in ``X-MLX-Stack-Tier``, which overrides ``model``. ``cloud``: whether
    the client allows cloud tiers. ``listed``: LiteLLM's models, None while unknown. Raises
    :class:`NoSuchTier`.
    """
    if header_tier is not None:
        tier = named_tier(header_tier, settings)
        if tier is None:
            names = ", ".join([AUTO, *settings.tiers])
            raise NoSuchTier(
                f"unknown tier {header_tier[:64]!r}; known: {names}", "X-MLX-Stack-Tier"
            )
        return _forward(tier, "X-MLX-Stack-Tier", cloud, listed, settings)
    start = named_tier(model, settings) or _tier_of(model, settings)
    if start is not None:
        return _forward(start, "model", cloud, listed, settings)
    passes = settings.reliability.escalation.unknown_models == "passthrough"
    if passes or (listed is not None and is_listed(model, listed)):
        if not cloud_allowed(cloud, settings):
            raise NoSuchTier(
                f"model {model[:64]!r} is not a tier, so the proxy can't keep the request on this "
                "machine; name a tier",
                "model",
            )
        return Route((), model)
    first = settings.reliability.escalation.chain[0]
    return replace(_forward(first, "model", cloud, listed, settings), unknown_model=True)


class Routes:
    """The routes of one configuration, cached because most requests share a few."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.of = lru_cache(_KNOWN)(partial(route, settings=settings))


def _forward(
    start: str, param: str, cloud: bool, listed: Collection[str] | None, settings: Settings
) -> Route:
    chain = settings.reliability.escalation.chain
    later = chain[chain.index(start) + 1 :] if start in chain else ()
    allowed = cloud_allowed(cloud, settings)
    if not allowed and not settings.tiers[start].local and param == "X-MLX-Stack-Tier":
        raise NoSuchTier(f"tier {start!r} is not on this machine, as this request requires", param)
    consents = may_enter_cloud(cloud, settings)
    start_tiers = [start] if allowed or settings.tiers[start].local else []
    tiers = start_tiers + [name for name in later if settings.tiers[name].local or consents]
    listed_tiers = [
        tier
        for tier in tiers
        if tier != CLOUD_TIER and (listed is None or is_listed(settings.tiers[tier].model, listed))
    ]
    unlisted_cloud = {t for t in tiers if t not in listed_tiers and not settings.tiers[t].local}
    fallback = settings.reliability.escalation.cloud_fallback
    callable_directly = consents and fallback is not None and cloud_key(fallback) is not None
    direct = unlisted_cloud if callable_directly else set()
    if start == CLOUD_TIER and start not in direct and fallback is not None:
        raise NoSuchTier(f"tier {start!r} can't be used: ${fallback.api_key_env} is not set", param)
    if not (listed_tiers or tiers):
        raise NoSuchTier("no tier on this machine can take this request", param)
    reachable = [tier for tier in tiers if tier in listed_tiers or tier in direct]
    # If LiteLLM lists none of them, use the first anyway, because LiteLLM's error explains it best.
    reachable = reachable or tiers[:1]
    cheaper = _cheaper(reachable[0], listed, settings)
    return Route(tuple(reachable), direct=frozenset(direct), cheaper=cheaper)


def _cheaper(first: str, listed: Collection[str] | None, settings: Settings) -> tuple[str, ...]:
    """Return ``downgrade_tier``, then the chain's tiers between it and ``first``."""
    budget = settings.reliability.token_budget
    if budget.policy != "escalate":
        return ()
    chain = settings.reliability.escalation.chain
    between: tuple[str, ...] = ()
    if budget.downgrade_tier in chain and first in chain:
        between = chain[chain.index(budget.downgrade_tier) + 1 : chain.index(first)]
    tiers = (budget.downgrade_tier, *between)
    return tuple(t for t in tiers if listed is None or is_listed(settings.tiers[t].model, listed))


def cloud_allowed(client_allows: bool, settings: Settings) -> bool:
    """Whether a request may leave this machine: the client and the operator must allow it."""
    return client_allows and settings.reliability.escalation.cloud


def may_enter_cloud(client_allows: bool, settings: Settings) -> bool:
    """Whether the proxy may choose a tier that isn't local: the operator must consent, too.

    Escalation, memory pressure and the judge all use this check. The cap on their tokens there is
    ``Cloud.limits``.
    """
    consent = settings.reliability.escalation.cloud_fallback
    return cloud_allowed(client_allows, settings) and consent is not None and consent.enabled


def is_local_model(model: str, settings: Settings) -> bool:
    """Whether this LiteLLM model belongs to tiers that are all on this machine."""
    local = [tier.local for tier in settings.tiers.values() if tier.model == model]
    return bool(local) and all(local)
