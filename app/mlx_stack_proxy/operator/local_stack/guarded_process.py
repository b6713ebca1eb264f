"""A child process that can't outlive us.

Each child leads a process group and a session of its own: Ctrl-C in the terminal reaches only `up`,
which then ends the children in order. In each of these groups a few lines of shell wait at the end
of a pipe that only `up` holds open: when `up` is gone, however it went, the pipe ends and they end
their group. That needs nothing of the operating system but POSIX, so it is the same on Linux and
macOS; and as they are in the group they guard, its number can't be given to others meanwhile.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import Mapping, Sequence
from pathlib import Path

# How long children may take to end by themselves once `up` has been killed.
ORPHAN_GRACE_SECONDS = 5
_LOOKS = 50
_LOOK_SECONDS = 0.02

# `$$` is the command itself, which takes the shell's place; `kill … 0` means the own group.
_GUARD = f"""
exec 3<&0 </dev/null
(
  trap '' HUP INT TERM
  read line <&3
  kill -TERM 0
  n=0
  while [ $n -lt {ORPHAN_GRACE_SECONDS} ] && kill -0 $$; do sleep 1; n=$((n + 1)); done
  kill -KILL 0
) >/dev/null 2>&1 &
exec "$@" 3<&-
"""


class Lifeline:
    """The pipe whose end tells the guards that we are gone. One serves all children."""

    def __init__(self) -> None:
        # Neither end is inheritable: no child can hold it open by accident.
        self.read_end, self._write_end = os.pipe()

    def __enter__(self) -> Lifeline:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._write_end)
        os.close(self.read_end)


class GuardedProcess:
    """A running child. Make it with :func:`start`."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process

    @property
    def pid(self) -> int:
        return self._process.pid

    async def wait(self) -> int:
        """The exit code, once it has ended; that of a signal is negative."""
        return await self._process.wait()

    async def end(self, grace: float) -> None:
        """Ask it to end; after ``grace`` seconds kill the whole group."""
        if self._process.returncode is None:
            self._signal(signal.SIGTERM)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._process.wait(), grace)
        await self.kill()

    async def kill(self) -> None:
        """Kill the whole group, its guard included, and see it gone."""
        self._signal(signal.SIGKILL)
        await self._process.wait()
        # The others die a moment later; their ports are free only then.
        for _ in range(_LOOKS):
            if not self._signal(0):
                break
            await asyncio.sleep(_LOOK_SECONDS)

    def _signal(self, number: int) -> bool:
        """Whether there is such a group; macOS says EPERM when only zombies are left of it."""
        try:
            os.killpg(self._process.pid, number)
        except (ProcessLookupError, PermissionError):
            return False
        return True


def guarded(command: Sequence[str]) -> list[str]:
    """A command with its guard. Its standard input must be a :class:`Lifeline`'s read end, and it
    must lead a session of its own."""
    return ["/bin/sh", "-c", _GUARD, "mlx-stack-guard", *command]


async def start(
    command: Sequence[str],
    environment: Mapping[str, str],
    directory: Path,
    log_file: Path,
    lifeline: Lifeline,
) -> GuardedProcess:
    """Start a command whose output is appended to its log file. Raises ``OSError``."""
    log = os.open(log_file, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    try:
        process = await asyncio.create_subprocess_exec(
            *guarded(command),
            stdin=lifeline.read_end,
            stdout=log,
            stderr=log,
            cwd=directory,
            env=dict(environment),
            start_new_session=True,
        )
    finally:
        os.close(log)
    return GuardedProcess(process)
