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
        self._said: OrderedDict[Hashable, float] = OrderedDict()  # when it was said, oldest first

    def allows(self, what: Hashable) -> bool:
        """Whether ``what`` was not said within the last minute; if so, note that it is said now."""
        now = self._clock()
        said = self._said.get(what)
        if said is not None and now < said + SECONDS:
            return False
        self._said[what] = now
        self._said.move_to_end(what)
        if len(self._said) > MOST:
            self._said.popitem(last=False)
        return True
