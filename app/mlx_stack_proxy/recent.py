"""A bounded mapping that drops what was set longest ago."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable, Sequence
from typing import TypeVar

MOST = 256

_K = TypeVar("_K", bound=Hashable)
_V = TypeVar("_V")


class Recent(OrderedDict[_K, _V]):
    """Setting a key makes it the newest; beyond ``most`` keys the oldest is dropped."""

    def __init__(self, most: int = MOST) -> None:
        super().__init__()
        self._most = most

    def __setitem__(self, key: _K, value: _V) -> None:
        # No `move_to_end`: another thread (for large bodies) may drop the key meanwhile.
        self.pop(key, None)
        super().__setitem__(key, value)
        if len(self) > self._most:
            self.popitem(last=False)

    def find_and_refresh(self, run: Sequence[_K]) -> _V | None:
        """Return the value of the run's newest key that has one, and set it for the run's last key.

        So the value outlives the oldest turns of a long run, which are forgotten.
        """
        for place in reversed(run):
            if place in self:
                self[run[-1]] = self[place]
                return self[place]
        return None
