"""An asyncio event loop whose clock jumps to whatever comes next: nothing is waited for.

Coroutines are what they are elsewhere, so that the proxy's own ``TierQueue`` runs in it unchanged.
"""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Coroutine
from typing import Any, TypeVar

Result = TypeVar("Result")


class _NoWaiting(selectors.SelectSelector):
    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0

    def select(self, timeout: float | None = None) -> list[Any]:
        if timeout is None:
            raise RuntimeError("nothing is left to happen")
        self.now += max(0.0, timeout)
        return []


class VirtualTimeLoop(asyncio.SelectorEventLoop):
    """No I/O; ``time()`` begins at 0."""

    def __init__(self) -> None:
        self._jumping = _NoWaiting()
        super().__init__(self._jumping)

    def time(self) -> float:
        return self._jumping.now


def run(work: Coroutine[Any, Any, Result]) -> Result:
    """What ``asyncio.run`` does, in no time."""
    with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
        return runner.run(work)
