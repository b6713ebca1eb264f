"""Waiting for an event to happen, instead of for a fixed time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

TURNS = 20  # of the event loop: more than any chain of callbacks in these tests needs


async def until(true: Callable[[], object], within: float = 20) -> None:
    async with asyncio.timeout(within):
        while not true():  # noqa: ASYNC110
            await asyncio.sleep(0.005)


async def settled() -> None:
    """Let every task run that waits neither for input or output nor for a time."""
    for _ in range(TURNS):
        await asyncio.sleep(0)
