"""Waiting for an event to happen, instead of for a fixed time."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable
from typing import Any

TURNS = 20  # of the event loop: more than any chain of callbacks in these tests needs


async def until(true: Callable[[], object], within: float = 20) -> Any:
    """What ``true()`` comes to, awaited where it has to be, once it is true."""
    async with asyncio.timeout(within):
        while True:
            found = true()
            if inspect.isawaitable(found):
                found = await found
            if found:
                return found
            await asyncio.sleep(0.005)


async def settled() -> None:
    """Let every task run that waits neither for input or output nor for a time."""
    for _ in range(TURNS):
        await asyncio.sleep(0)
