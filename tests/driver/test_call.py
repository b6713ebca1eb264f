"""What reads a call's reply."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from mlx_stack_proxy.driver.call import Call


class Endless:
    """A reply whose next piece is always there, and an attempt that a thread has to feed."""

    over = False

    def __init__(self) -> None:
        self.fed = 0
        self.cancel: Callable[[], object] | None = None

    async def next_bytes(self) -> bytes:
        assert self.fed < 100, "it was cancelled long ago"
        if self.cancel is not None and not self.fed:
            asyncio.get_running_loop().call_soon(self.cancel)  # while the thread runs
        return b"x"

    def is_slow_to_feed(self, data: bytes) -> bool:
        return True

    def feed(self, data: bytes) -> bytes:
        self.fed += 1
        return b""


async def test_a_cancellation_ends_a_reply_that_never_pauses() -> None:
    """Although each piece that a thread has begun is fed to its end."""
    endless: Any = Endless()
    call: Any = SimpleNamespace(attempt=endless, first_byte=None)
    reading = asyncio.ensure_future(Call._read_stream(call, endless, None, None))
    endless.cancel = reading.cancel
    with pytest.raises(asyncio.CancelledError):
        await reading
