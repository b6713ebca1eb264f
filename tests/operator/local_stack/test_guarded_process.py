from __future__ import annotations

import os
import signal
import subprocess
import sys
from asyncio.subprocess import Process
from pathlib import Path

import pytest

from mlx_stack_proxy.operator.local_stack import guarded_process
from mlx_stack_proxy.operator.local_stack.guarded_process import Lifeline

from .conftest import CHILD, alive, members, until

# Starts one guarded child, says its process number, and waits to be killed.
HOLDER = """
import asyncio, os, sys
from pathlib import Path
from mlx_stack_proxy.operator.local_stack import guarded_process

async def main():
    lifeline = guarded_process.Lifeline()
    folder = Path(sys.argv[1])
    child = await guarded_process.start(
        sys.argv[2:], dict(os.environ), folder, folder / "child.log", lifeline)
    print(child.pid, flush=True)
    await asyncio.Event().wait()

asyncio.run(main())
"""


async def started(lifeline: Lifeline, folder: Path, *options: str) -> Process:
    return await guarded_process.start(
        [sys.executable, str(CHILD), "--mute", *options],
        {"PATH": os.environ["PATH"]},
        folder,
        folder / "child.log",
        lifeline,
    )


async def grandchild(folder: Path) -> int:
    log = folder / "child.log"
    await until(lambda: log.exists() and log.read_text().endswith("\n"))
    return int(log.read_text())


async def test_the_command_takes_the_shells_place_and_has_no_input(tmp_path: Path) -> None:
    with Lifeline() as lifeline:
        command = [sys.executable, "-c", "import os, sys; print(os.getpid(), sys.stdin.read())"]
        child = await guarded_process.start(command, {}, tmp_path, tmp_path / "log", lifeline)
        assert await child.wait() == 0
        assert (tmp_path / "log").read_text().strip() == str(child.pid)
        await guarded_process.end(child, 0)
        assert not members(child.pid)


@pytest.mark.parametrize(
    ("options", "grace", "ended_by"),
    [([], 30, signal.SIGTERM), (["--deaf"], 0.1, signal.SIGKILL)],
)
async def test_ending_takes_what_the_child_has_started(
    options: list[str], grace: float, ended_by: signal.Signals, tmp_path: Path
) -> None:
    with Lifeline() as lifeline:
        child = await started(lifeline, tmp_path, *options, "--grandchild")
        pid = await grandchild(tmp_path)
        await guarded_process.end(child, grace)
        assert await child.wait() == -ended_by
        await guarded_process.end(child, grace)  # what has ended already
        assert not alive(pid)
        assert not members(child.pid)


@pytest.mark.parametrize("options", [[], ["--deaf"]])
async def test_no_child_outlives_a_killed_holder(tmp_path: Path, options: list[str]) -> None:
    command = [sys.executable, str(CHILD), "--mute", "--grandchild", *options]
    holder = subprocess.Popen(  # noqa: ASYNC220
        [sys.executable, "-c", HOLDER, str(tmp_path), *command],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[3])},
    )
    assert holder.stdout is not None
    child = int(holder.stdout.readline())
    pid = await grandchild(tmp_path)
    holder.kill()
    holder.wait()
    holder.stdout.close()
    await until(lambda: not alive(child) and not alive(pid) and not members(child))


async def test_a_command_that_is_not_there_says_so_in_its_log(tmp_path: Path) -> None:
    with Lifeline() as lifeline:
        child = await guarded_process.start(
            ["/no/such/program"], {}, tmp_path, tmp_path / "log", lifeline
        )
        assert await child.wait() == 127
        await guarded_process.end(child, 0)
    assert "/no/such/program" in (tmp_path / "log").read_text()
