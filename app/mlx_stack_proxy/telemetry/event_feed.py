"""Who follows the events: woken when there may be new ones, let go when the process ends."""

from __future__ import annotations

import asyncio
from typing import Final

MAX_FOLLOWERS: Final = 32


class EventFeed:
    """``followers``: how many streams there are now; ``closed``: they are to end."""

    def __init__(self) -> None:
        self.followers = 0
        self.closed = False
        self._waiting: set[asyncio.Future[None]] = set()

    @property
    def is_full(self) -> bool:
        return self.followers >= MAX_FOLLOWERS

    def told(self) -> None:
        """This process has kept events."""
        for future in self._waiting:
            if not future.done():
                future.set_result(None)

    async def wait(self, seconds: float) -> None:
        """Until this process keeps events, but no longer than that: others may keep some too."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.add(future)
        try:
            await asyncio.wait([future], timeout=seconds)
        finally:
            self._waiting.discard(future)

    def close(self) -> None:
        """The process ends: every follower is to go."""
        self.closed = True
        self.told()
