"""Limits messages that every request could cause to one a minute."""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable
from typing import Final

from ..recent import Recent

SECONDS: Final = 60.0
MOST: Final = 10_000  # messages remembered; the oldest are forgotten first


class RateLimit:
    """Remembers when each message was last allowed. ``clock``: seconds, monotonic."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._last_allowed: Recent[Hashable, float] = Recent(MOST)  # by message

    def allows(self, message: Hashable) -> bool:
        """Whether ``message`` may go out, once a minute; records that it does."""
        now = self._clock()
        last = self._last_allowed.get(message)
        if last is not None and now < last + SECONDS:
            return False
        self._last_allowed[message] = now
        return True
