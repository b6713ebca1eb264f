"""Limits messages that could come with every request to one a minute."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Final

SECONDS: Final = 60.0
MOST: Final = 10_000  # messages remembered; the oldest are forgotten first


class RateLimit:
    """Remembers when each message was last allowed. ``clock``: seconds, monotonic."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        # By message, when it was last allowed; the oldest first.
        self._last_allowed: OrderedDict[Hashable, float] = OrderedDict()

    def allows(self, message: Hashable) -> bool:
        """Whether ``message`` may go out (not in the last minute yet); note that it does."""
        now = self._clock()
        last = self._last_allowed.get(message)
        if last is not None and now < last + SECONDS:
            return False
        self._last_allowed[message] = now
        self._last_allowed.move_to_end(message)
        if len(self._last_allowed) > MOST:
            self._last_allowed.popitem(last=False)
        return True
