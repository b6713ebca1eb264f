"""Work on an attempt in a thread, and a cancellation that comes meanwhile."""

from __future__ import annotations

import asyncio
import threading

import pytest

from mlx_stack_proxy.driver.calls import in_thread


async def test_a_cancellation_waits_for_the_work_and_loses_no_result() -> None:
    begun, end = asyncio.Event(), threading.Event()
    loop = asyncio.get_running_loop()
    results: list[str] = []

    def work() -> str:
        loop.call_soon_threadsafe(begun.set)
        end.wait()
        return "bytes"

    async def read() -> None:
        results.append(await in_thread(work))
        await asyncio.sleep(0)
        results.append("went on")

    task = asyncio.ensure_future(read())
    await begun.wait()
    task.cancel()
    await asyncio.sleep(0)
    assert not task.done()
    end.set()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert results == ["bytes"]
    assert task.cancelling() == 1


async def test_what_the_work_raises_is_raised() -> None:
    def work() -> None:
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        await in_thread(work)
