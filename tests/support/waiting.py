"""Waiting for what happens in its own time, never for a time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

TURNS = 20  # of the loop: more than anything here takes without a call or a time


async def until(true: Callable[[], object], within: float = 20) -> None:
    async with asyncio.timeout(within):
        while not true():  # noqa: ASYNC110
            await asyncio.sleep(0.005)


async def settled() -> None:
    """All that can run without a call or a time has run."""
    for _ in range(TURNS):
        await asyncio.sleep(0)
