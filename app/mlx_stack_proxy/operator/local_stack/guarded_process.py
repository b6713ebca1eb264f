"""Child processes that can't outlive ``up``.

Each child leads a session and process group of its own, so that Ctrl-C in the terminal reaches only
``up``, which then ends the children in order. Each group also has a guard: a few lines of shell
that read from a pipe whose write end only ``up`` holds. When ``up`` ends, in whatever way, the read
returns and the guard ends its group. This needs only POSIX, and so works alike on Linux and macOS.
As long as the guard is in the group, the system can't give the group's number to other processes.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from asyncio.subprocess import Process
from collections.abc import Mapping, Sequence
from pathlib import Path

ORPHAN_GRACE_SECONDS = 5  # between the guard's SIGTERM and its SIGKILL, once `up` is gone
_LOOKS = 50  # how often to look whether a killed group is gone
_LOOK_SECONDS = 0.02

# `$$` is the child's process: `exec` replaces the shell by the command. `kill … 0` signals the
# whole group.
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
    """The pipe whose end shows the guards that ``up`` is gone. All children share one."""

    def __init__(self) -> None:
        # Neither end is inheritable, so that no child holds the write end open by accident.
        self.read_end, self._write_end = os.pipe()

    def __enter__(self) -> Lifeline:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._write_end)
        os.close(self.read_end)


def guarded(command: Sequence[str]) -> list[str]:
    """Return the command that runs ``command`` with its guard.

    The process's standard input must be a :class:`Lifeline`'s read end, and it must lead a session.
    """
    return ["/bin/sh", "-c", _GUARD, "mlx-stack-guard", *command]


async def start(
    command: Sequence[str],
    environment: Mapping[str, str],
    directory: Path,
    log_file: Path,
    lifeline: Lifeline,
) -> Process:
    """Start a command with its guard; append its output to the log file. Raises ``OSError``."""
    log = os.open(log_file, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    try:
        return await asyncio.create_subprocess_exec(
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


async def end(child: Process, grace: float) -> None:
    """Send SIGTERM to the child's group; kill the group when the child ends or ``grace`` is over.

    ``grace``: seconds. A cancelled caller kills the group at once; it is gone a second later at
    most, when this returns.
    """
    try:
        if child.returncode is None:
            _signal(child, signal.SIGTERM)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(child.wait(), grace)
    finally:
        _signal(child, signal.SIGKILL)
        await child.wait()
        # The child's own children die a moment later, and only then are their ports free.
        for _ in range(_LOOKS):
            if not _signal(child, 0):
                break
            await asyncio.sleep(_LOOK_SECONDS)


def _signal(child: Process, number: int) -> bool:
    """Signal the group; return whether it exists (macOS: EPERM if only zombies are left)."""
    try:
        os.killpg(child.pid, number)
    except (ProcessLookupError, PermissionError):
        return False
    return True
