"""``GET /mlx-stack/status``: the process, its tiers and its budgets, read at each request.

``/ready`` has parts of it: model servers that are gone, and settings that wait.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping
from typing import Any, Final

from .. import __version__
from ..driver.services import Services, upstream_key
from ..engine.tier_view import window
from ..escalation.cloud import SCOPE as CLOUD
from ..settings import Settings
from ..state.hourly import hour_of
from ..state.store import Limit
from ..telemetry import report, token_rates
from .kept import counts_of, or_remembered

HEALTH_SECONDS: Final = 1.0  # how long a server's answer may take


async def status(services: Services) -> dict[str, Any]:
    """Return the status as JSON-ready data.

    ``started`` is in seconds since the epoch. ``running`` and the tiers' calls are this
    process's; ``sessions``, ``day`` and ``budgets`` are of all processes on this store.
    """
    sessions, budgets = await kept(services)
    alive, gone_tiers = await asyncio.gather(
        services.upstream.is_alive(HEALTH_SECONDS), servers_gone(services)
    )
    this_hour = hour_of(services.wall_clock())
    hours, _ = await counts_of(services, this_hour - 23, this_hour)
    return {
        "version": __version__,
        "started": services.life.started,
        "stopping": services.life.stopping,
        "running": len(services.drivers),
        "sessions": sessions,
        "litellm": "ok" if alive else services.upstream.reach.why or "no answer in time",
        "configuration": configuration(services, whole=True),
        "store": services.store.health.sentence or "ok",
        "memory_pressure": services.memory.shown(),
        "chain": list(services.settings.reliability.escalation.chain),
        "tiers": _tiers(services, gone_tiers),
        "clients": for_clients(services.settings),
        "day": report.sums(hours),
        "budgets": budgets,
    }


async def kept(services: Services) -> tuple[int | None, list[dict[str, Any]]]:
    """Return the number of sessions and the budgets; None and no budgets if the store fails."""
    limits, now, store = _limits(services.settings), services.wall_clock(), services.store

    async def asked() -> tuple[int, Mapping[str, int]] | None:
        return (await store.sessions(now, limit=0)).number, (
            await store.load("", now, limits)
        ).counts

    found, _ = await or_remembered(services, asked(), lambda: None)
    if found is None:
        return None, []
    sessions, used = found
    return sessions, [
        {"scope": limit.scope, "used": used.get(limit.scope, 0), "limit": limit.most}
        for limit in limits
    ]


def for_clients(settings: Settings) -> dict[str, Any]:
    """Return what a client needs to use the proxy: the key, the names, the limit on a reply.

    ``key``: "any"; "own", one of ``server.api_keys``; "litellm", LiteLLM's. ``key_needed``: whether
    a made-up key is refused, as far as we know.
    """
    keys = settings.server.api_keys
    whose = "any" if "*" in keys else "own" if keys else "litellm"
    return {
        "key": whose,
        "key_needed": whose == "own" or (whose == "litellm" and upstream_key(settings) is not None),
        "aliases": dict(settings.reliability.escalation.aliases),
        "max_output_tokens": settings.reliability.token_budget.max_output_tokens,
    }


def _limits(settings: Settings) -> list[Limit]:
    """Return the hourly budgets to show; API keys' budgets, stored under a hash, are left out."""
    rules = settings.reliability.token_budget
    limits: list[Limit] = []
    if rules.enabled:
        limits.append(Limit("hour", rules.per_hour, rolling=True))
        limits += [
            Limit(f"tier:{name}", tier_rules.per_hour, rolling=True)
            for name, tier_rules in rules.per_tier.items()
            if tier_rules.per_hour is not None
        ]
    cloud = settings.reliability.escalation.cloud_fallback
    if cloud is not None and cloud.enabled and settings.reliability.escalation.cloud:
        limits.append(Limit(CLOUD, cloud.max_tokens_per_hour, rolling=True))
    return limits


def _tiers(services: Services, gone_tiers: Collection[str]) -> dict[str, dict[str, Any]]:
    queues = {name: (used, waiting) for name, used, waiting in services.queues.readings()}
    writing = [reading for driver in services.drivers if (reading := driver.writing()) is not None]
    now, view = services.wall_clock(), services.tier_states.view()
    rates = token_rates.per_second(reversed(services.records), writing, now)
    tiers = {}
    for name, tier in services.settings.tiers.items():
        health = services.tier_states[name]
        in_flight, waiting = queues.get(name, (0, 0))
        tiers[name] = {
            "model": tier.model,
            "local": tier.local,
            "context_window": window(name, services.settings, view),
            "state": tier_state(services, name, gone_tiers),
            "degraded_until": health.until(now) or None,
            "failures": health.failures,
            "in_flight": in_flight,
            "max_concurrency": tier.max_concurrency,
            "waiting": waiting,
            "tokens_per_second": round(rates.get(name, 0.0), 1),
        }
    return tiers


async def servers_gone(services: Services) -> set[str]:
    """Return the names of the tiers whose ``health_url`` accepts no connection now."""
    tiers = services.settings.tiers.items()
    urls = {name: tier.health_url for name, tier in tiers if tier.health_url is not None}
    ask = services.upstream.health
    answers = await asyncio.gather(*(ask(url, HEALTH_SECONDS) for url in urls.values()))
    return {name for name, answer in zip(urls, answers, strict=True) if answer == "gone"}


def tier_state(services: Services, tier: str, gone_tiers: Collection[str]) -> str:
    """Return a tier's state as a word. ``gone_tiers``: as ``servers_gone()`` returns them."""
    if tier in gone_tiers:
        return "unreachable"
    return "degraded" if services.tier_states[tier].degraded else "ok"


def configuration(services: Services, *, whole: bool) -> Any:
    """Return "ok", or the problems of the settings that were read last.

    ``whole``: return a dict of the problems and changed keys; otherwise only one word.
    """
    bad, restart_due = services.life.bad_settings, services.life.restart_due
    if not bad and not restart_due:
        return "ok"
    if whole:
        return {"refused": bad, "restart_due": restart_due}
    return "refused" if bad else "restart_due"
