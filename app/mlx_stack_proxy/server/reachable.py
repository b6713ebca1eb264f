"""What `status` and `/ready` say beyond the process: servers that are gone, settings that wait."""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from typing import Any, Final

from ..engine.services import Services

HEALTH_SECONDS: Final = 1.0  # for an answer


async def servers_gone(services: Services) -> set[str]:
    """The tiers whose ``health_url`` takes no connection now."""
    tiers = services.settings.tiers.items()
    urls = {name: tier.health_url for name, tier in tiers if tier.health_url is not None}
    ask = services.upstream.health
    found = await asyncio.gather(*(ask(url, HEALTH_SECONDS) for url in urls.values()))
    return {name for name, health in zip(urls, found, strict=True) if health == "gone"}


def tier_state(services: Services, tier: str, gone: Collection[str]) -> str:
    """``gone``: the tiers whose servers take no connection."""
    if tier in gone:
        return "unreachable"
    return "degraded" if services.tier_states[tier].degraded else "ok"


def configuration(services: Services, *, whole: bool) -> Any:
    """What is wrong with the settings that were given last. ``whole``: else only whether."""
    bad, restart_due = services.life.bad_settings, services.life.restart_due
    if not bad and not restart_due:
        return "ok"
    if whole:
        return {"refused": bad, "restart_due": restart_due}
    return "refused" if bad else "restart_due"
