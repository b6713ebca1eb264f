"""Children that do as they are told, and ways to wait for what they do."""

from __future__ import annotations

import asyncio
import io
import os
import sys
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import psutil
import pytest

from mlx_stack_proxy.operator.local_stack.children import ChildSpec
from mlx_stack_proxy.operator.local_stack.supervisor import Console, Supervisor
from tests.support.ports import free_port

CHILD = Path(__file__).with_name("scripted_child.py")
PATIENCE = 30.0

MakeSpec = Callable[..., ChildSpec]


def alive(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def members(group: int) -> list[int]:
    """The processes of a group, without those that have ended and only wait to be reaped."""
    found = []
    for process in psutil.process_iter():
        try:
            if os.getpgid(process.pid) == group and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process.pid)
        except (psutil.Error, OSError):
            continue
    return found


def mentioning(text: str) -> list[int]:
    """The processes with this text in their command line."""
    found = []
    for process in psutil.process_iter():
        try:
            if any(text in part for part in process.cmdline()) and alive(process.pid):
                found.append(process.pid)
        except psutil.Error:
            continue
    return found


async def until(condition: Callable[[], object], patience: float = PATIENCE) -> None:
    end = time.monotonic() + patience
    while not condition():
        assert time.monotonic() < end, "it did not happen in time"
        await asyncio.sleep(0.02)


class Stack:
    """A supervisor with everything it has said.

    ``program``: what its children run, and those of no other test, which may run at the same time.
    """

    def __init__(self, program: Path) -> None:
        self._program = program
        self.out = io.StringIO()
        self.supervisor = Supervisor(Console(self.out))

    @property
    def said(self) -> str:
        return self.out.getvalue()

    def processes(self) -> list[int]:
        """The scripted children that run, and their guards."""
        return mentioning(str(self._program))

    def children(self) -> list[int]:
        """Without their guards."""
        return [pid for pid in self.processes() if os.getpgid(pid) == pid]


@pytest.fixture
def program(tmp_path: Path) -> Path:
    link = tmp_path / CHILD.name
    link.symlink_to(CHILD)
    return link


@pytest.fixture
async def stack(program: Path) -> AsyncIterator[Stack]:
    stack = Stack(program)
    async with stack.supervisor:
        yield stack


@pytest.fixture
def make_spec(tmp_path: Path, program: Path) -> MakeSpec:
    """Makes the specification of a scripted child: `make_spec("a", "--deaf")`."""

    def make(
        name: str,
        *options: str,
        start_limit: float | None = PATIENCE,
        end_grace: float = PATIENCE,
        model: str = "",
    ) -> ChildSpec:
        port = free_port()
        return ChildSpec(
            name=name,
            what="a scripted child",
            command=(sys.executable, str(program), "--port", str(port), *options),
            environment={"PATH": os.environ["PATH"]},
            directory=tmp_path,
            log_file=tmp_path / f"{name}.log",
            url=f"http://127.0.0.1:{port}/",
            model=model,
            start_limit=start_limit,
            end_grace=end_grace,
        )

    return make
