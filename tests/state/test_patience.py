"""A wait that ends in time, and what its end is taken for."""

from __future__ import annotations

import asyncio
import time

import pytest

from mlx_stack_proxy.state.patience import Patience


async def test_what_takes_too_long_is_ended() -> None:
    with pytest.raises(TimeoutError):
        async with Patience(0.02):
            await asyncio.Event().wait()


async def test_who_is_cancelled_is_cancelled() -> None:
    async def wait() -> None:
        async with Patience(60):
            await asyncio.Event().wait()

    waiting = asyncio.create_task(wait())
    await asyncio.sleep(0)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting


async def test_what_came_while_the_loop_stood_still_is_in_time() -> None:
    come = asyncio.Event()
    loop = asyncio.get_running_loop()
    loop.call_soon(time.sleep, 0.1)
    loop.call_later(0.1, come.set)
    async with Patience(0.05):
        await come.wait()
