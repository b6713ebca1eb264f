"""Who follows the events: woken when there may be new ones, let go when the process ends."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Final

MAX_FOLLOWERS: Final = 32


class EventFeed:
    """``followers``: how many streams there are now; ``closed``: they are to end."""

    def __init__(self) -> None:
        self.followers = 0
        self.closed = False
        self._news = asyncio.Event()  # set once; whoever comes later waits for the next one

    @property
    def is_full(self) -> bool:
        return self.followers >= MAX_FOLLOWERS

    def told(self) -> None:
        """This process has kept events."""
        self._news.set()
        self._news = asyncio.Event()

    async def wait(self, seconds: float) -> None:
        """Until this process keeps events, but no longer than that: others may keep some too."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._news.wait()

    def close(self) -> None:
        """The process ends: every follower is to go."""
        self.closed = True
        self.told()
