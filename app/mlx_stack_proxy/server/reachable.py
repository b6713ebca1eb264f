"""Parts of ``status`` and ``/ready``: model servers that are gone, settings that wait."""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from typing import Any, Final

from ..engine.services import Services

HEALTH_SECONDS: Final = 1.0  # for a server's answer


async def servers_gone(services: Services) -> set[str]:
    """Return the names of the tiers whose ``health_url`` accepts no connection now."""
    tiers = services.settings.tiers.items()
    urls = {name: tier.health_url for name, tier in tiers if tier.health_url is not None}
    ask = services.upstream.health
    found = await asyncio.gather(*(ask(url, HEALTH_SECONDS) for url in urls.values()))
    return {name for name, health in zip(urls, found, strict=True) if health == "gone"}


def tier_state(services: Services, tier: str, gone: Collection[str]) -> str:
    """Return a tier's state as a word. ``gone``: as ``servers_gone()`` returns it."""
    if tier in gone:
        return "unreachable"
    return "degraded" if services.tier_states[tier].degraded else "ok"


def configuration(services: Services, *, whole: bool) -> Any:
    """Return "ok", or what is wrong with the settings that were read last.

    ``whole``: with the problems and keys in a dict; otherwise one word, without their text.
    """
    bad, restart_due = services.life.bad_settings, services.life.restart_due
    if not bad and not restart_due:
        return "ok"
    if whole:
        return {"refused": bad, "restart_due": restart_due}
    return "refused" if bad else "restart_due"
