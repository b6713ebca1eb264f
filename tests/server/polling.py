"""Waiting for what only the proxy's own figures tell."""

from __future__ import annotations

import asyncio
import re

from tests.support.running_proxy import RunningProxy


def metric_value(text: str, name: str, **labels: str) -> float | None:
    """The value of one series; None if there is none. A missing gauge counts as not there yet."""
    for line in text.splitlines():
        found = re.match(rf"{name}(?:\{{(.*)\}})? (\S+)$", line)
        if found and all(f'{key}="{value}"' in (found[1] or "") for key, value in labels.items()):
            return float(found[2])
    return None


async def metric(proxy: RunningProxy, name: str, **labels: str) -> float | None:
    """The value of a series now."""
    return metric_value((await proxy.client.get("/metrics")).text, name, **labels)


async def is_degraded(proxy: RunningProxy, tier: str = "fast") -> bool:
    return await metric(proxy, "mlx_stack_tier_degraded", tier=tier) == 1


async def until_metric(
    proxy: RunningProxy, name: str, wanted: float, within: float = 10, **labels: str
) -> None:
    """Ask /metrics until the series has this value; 0 is also told by its absence."""
    value: float | None = None
    try:
        async with asyncio.timeout(within):
            while True:
                value = await metric(proxy, name, **labels)
                if (value or 0) == wanted:
                    return
                await asyncio.sleep(0.01)
    except TimeoutError:
        raise AssertionError(f"{name}{labels} is {value}, not {wanted}") from None
