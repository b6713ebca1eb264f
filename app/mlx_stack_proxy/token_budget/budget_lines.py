"""Who waits for tokens that others have set aside: a line for each budget, served in its order.

Without one, what asks for much would be passed for ever by what asks for little. Who comes to a
line waits behind it, though there were room; whoever is first tries when tokens come back, and now
and then by itself, for other processes bring some back too, and so does time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Final

from ..state.store import Limit

LOOK_SECONDS: Final = 0.25  # between two tries of whoever is first that nothing has called


class Place:
    """A request's in one line."""

    __slots__ = ("called", "scope")

    def __init__(self, scope: str) -> None:
        self.scope = scope
        self.called = asyncio.Event()


class BudgetLines:
    """One process's lines, by scope; there are only those in which somebody waits."""

    def __init__(self) -> None:
        self._lines: dict[str, dict[Place, None]] = {}

    def before(self, limits: Iterable[Limit]) -> str | None:
        """The first of these scopes in which others wait."""
        if not self._lines:
            return None
        return next((limit.scope for limit in limits if limit.scope in self._lines), None)

    def join(self, scope: str, place: Place | None = None) -> Place:
        """A place at the end of a line; ``place``: the one held, kept if it is in that line."""
        if place is not None and place.scope == scope:
            return place
        if place is not None:
            self.leave(place)
        place = Place(scope)
        self._lines.setdefault(scope, {})[place] = None
        return place

    def leave(self, place: Place) -> None:
        """Give the place up; whoever is first then may try."""
        line = self._lines[place.scope]
        del line[place]
        if line:
            self._first(place.scope).called.set()
        else:
            del self._lines[place.scope]

    def freed(self, limits: Iterable[Limit]) -> None:
        """Tokens of these have come back."""
        if self._lines:
            for limit in limits:
                if limit.scope in self._lines:
                    self._first(limit.scope).called.set()

    async def turn(self, place: Place, due: float) -> None:
        """Until it is worth a try, but no longer than ``due`` (the loop's time)."""
        clock = asyncio.get_running_loop().time
        while (left := due - clock()) > 0:
            first = self._first(place.scope) is place
            try:
                async with asyncio.timeout(min(left, LOOK_SECONDS) if first else left):
                    await place.called.wait()
            except TimeoutError:
                pass
            place.called.clear()
            if self._first(place.scope) is place:
                return

    def _first(self, scope: str) -> Place:
        return next(iter(self._lines[scope]))
