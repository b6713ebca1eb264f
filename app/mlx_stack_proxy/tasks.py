"""The end of asyncio tasks."""

from __future__ import annotations

import asyncio
from typing import Any


async def end(*tasks: asyncio.Future[Any] | None) -> None:
    """Cancel them all, and wait until they have ended, in whatever way."""
    running = [task for task in tasks if task is not None]
    for task in running:
        task.cancel()
    await asyncio.gather(*running, return_exceptions=True)
