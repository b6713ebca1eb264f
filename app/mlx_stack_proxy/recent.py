"""A bounded mapping that evicts the key that was set longest ago."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable, Sequence
from typing import Any, TypeVar

MOST = 256

_K = TypeVar("_K", bound=Hashable)
_V = TypeVar("_V")


class Recent(OrderedDict[_K, _V]):
    """A mapping of at most ``most`` keys: setting a key makes it the newest; evicts the oldest."""

    def __init__(self, most: int = MOST) -> None:
        super().__init__()
        self._max_keys = most

    def __setitem__(self, key: _K, value: _V) -> None:
        # No `move_to_end`: another thread (for large bodies) may drop the key meanwhile.
        self.pop(key, None)
        super().__setitem__(key, value)
        if len(self) > self._max_keys:
            self._drop()

    def _drop(self) -> None:
        self.popitem(last=False)

    def find_and_refresh(self, run: Sequence[_K]) -> _V | None:
        """Return the value of the newest key in ``run`` that has one; set it for the last key, too.

        So the value outlives the run's oldest keys, which are dropped one by one.
        """
        for key in reversed(run):
            if key in self:
                value = self[run[-1]] = self[key]  # may drop `key`
                return value
        return None

    def forget(self, key: _K | None) -> None:
        """Drop a key; None: drop all keys."""
        if key is None:
            self.clear()
        else:
            self.pop(key, None)


class RecentByBytes(Recent[_K, _V]):
    """A :class:`Recent` that also holds at most ``most_bytes``; ``weigh`` returns a size."""

    def __init__(self, most: int, most_bytes: int, weigh: Callable[[_V], int]) -> None:
        super().__init__(most)
        self._weigh, self._most_bytes, self.bytes = weigh, most_bytes, 0

    def __setitem__(self, key: _K, value: _V) -> None:
        super().__setitem__(key, value)
        self.bytes += self._weigh(value)
        while self.bytes > self._most_bytes and self:
            self._drop()

    def pop(self, key: _K, default: Any = None) -> Any:
        value = super().pop(key, default)
        self.bytes -= self._weigh(value) if value is not None else 0
        return value

    def clear(self) -> None:
        super().clear()
        self.bytes = 0

    def _drop(self) -> None:
        self.pop(next(iter(self)))
