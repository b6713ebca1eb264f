"""A bounded mapping of sessions in which no API key pushes out another's."""

from __future__ import annotations

from typing import Final, TypeVar

from ..engine.session_id import busiest_key
from ..recent import Recent

_SHARE: Final = 100  # one of so many goes at once, because finding the key takes time

_V = TypeVar("_V")


class RecentSessions(Recent[str, _V]):
    """By session hash: if there are too many, the oldest go of the API key with the most."""

    def _drop(self) -> None:
        for session in busiest_key([*self])[: 1 + self._max_keys // _SHARE]:
            self.pop(session, None)
