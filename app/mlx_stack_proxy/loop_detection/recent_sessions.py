"""A bounded mapping of sessions in which no API key pushes out another's."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Final, TypeVar

from ..engine.session_id import DIGITS, busiest_key
from ..recent import Recent

_SHARE: Final = 100  # one of so many goes at once, because finding the key takes time

_V = TypeVar("_V")


class RecentSessions(Recent[str, _V]):
    """By session hash: if there are too many, the oldest go of the API key with the most."""

    def _drop(self) -> None:
        for session in busiest_key([*self])[: 1 + self._max_keys // _SHARE]:
            self.pop(session, None)

    def keep_within(self, most: int, weigh: Callable[[_V], int]) -> None:
        """Drop the heaviest session of the heaviest API key until all weigh at most ``most``."""
        weights = {session: weigh(value) for session, value in [*self.items()]}
        excess = sum(weights.values()) - most
        while excess > 0:
            keys: Counter[str] = Counter()
            for session, weight in weights.items():
                keys[session[DIGITS:]] += weight
            ((heaviest, _),) = keys.most_common(1)
            own = [session for session in weights if session[DIGITS:] == heaviest]
            victim = max(own, key=weights.__getitem__)
            excess -= weights.pop(victim)
            self.pop(victim, None)
