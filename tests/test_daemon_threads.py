"""A pool of threads that no exit waits for."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading

from mlx_stack_proxy.daemon_threads import DaemonThreads

HANGS = """
import asyncio, threading
from mlx_stack_proxy.daemon_threads import DaemonThreads

async def main():
    asyncio.get_running_loop().set_default_executor(DaemonThreads(2))
    hanging = asyncio.ensure_future(asyncio.to_thread(threading.Event().wait))
    assert await asyncio.to_thread(sum, [1, 2]) == 3
    hanging.cancel()

asyncio.run(main())
print("ended")
"""


def test_no_exit_waits_for_a_job() -> None:
    done = subprocess.run(
        [sys.executable, "-c", HANGS], capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.stdout, done.stderr, done.returncode) == ("ended\n", "", 0)


async def test_jobs_share_the_threads_and_tell_how_they_ended() -> None:
    asyncio.get_running_loop().set_default_executor(DaemonThreads(2))
    names = await asyncio.gather(
        *[asyncio.to_thread(lambda: threading.current_thread().ident) for _ in range(20)]
    )
    assert len(set(names)) <= 2
    results = await asyncio.gather(asyncio.to_thread(int, "x"), return_exceptions=True)
    assert isinstance(results[0], ValueError)


def test_a_job_that_was_cancelled_in_time_is_not_run() -> None:
    pool = DaemonThreads(1)
    gate, ran = threading.Event(), []
    first = pool.submit(gate.wait)
    second = pool.submit(ran.append, 1)
    assert second.cancel()
    gate.set()
    first.result(timeout=30)
    assert pool.submit(lambda: list(ran)).result(timeout=30) == []
