"""Starts servers, each in a process of its own, and asks what they have used."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Coroutine, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import psutil
import yaml

from tests.support.ports import free_port

from .records import ROOT


def cpu_seconds(process: psutil.Process) -> float:
    """User and system time. On Linux from the process's own clock: psutil's has ticks of 10 ms."""
    if psutil.LINUX:
        return time.clock_gettime((~process.pid << 3) | 2)  # as clock_getcpuclockid() makes it
    times = process.cpu_times()
    return times.user + times.system


def stop_with_us() -> None:
    """Let SIGTERM end this program as Ctrl-C does, so that what it has started is ended, too."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)


def until_interrupted(work: Coroutine[Any, Any, object]) -> bool:
    """Run what writes each result to disk at once; False where somebody stopped it."""
    stop_with_us()
    try:
        asyncio.run(work)
    except KeyboardInterrupt:
        print("Stopped; the same command goes on from here.")
        return False
    return True


@dataclass
class Server:
    """A child that serves on `port`; its output is in `log`. It ends with its block.

    `headers`: what it wants in a request, each a line with its end. `began`: time.monotonic() of
    its start; `ready_after`: seconds from there until it answered.
    """

    name: str
    port: int
    process: subprocess.Popen[bytes]
    log: Path
    began: float = 0.0
    ready_after: float = 0.0
    headers: str = ""

    def __post_init__(self) -> None:
        self.measured = psutil.Process(self.process.pid)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def cpu_seconds(self) -> float:
        """User and system time of the process, and of children that still run."""
        family = [self.measured, *self.measured.children(recursive=True)]
        return sum(cpu_seconds(process) for process in family)

    def rss(self) -> int:
        family = [self.measured, *self.measured.children(recursive=True)]
        return sum(process.memory_info().rss for process in family)

    def wait_ready(self, path: str, timeout: float) -> None:
        """Return when it answers with 200; end it and raise RuntimeError if it doesn't in time."""
        deadline = time.monotonic() + timeout * (SLOWER if _runner else 1)
        try:
            while True:
                with (
                    contextlib.suppress(OSError),
                    urllib.request.urlopen(self.url + path, timeout=2),
                ):
                    break
                if self.process.poll() is not None:
                    ended = f"{self.name} ended with {self.process.returncode}"
                    raise RuntimeError(f"{ended}: {self.said()}")
                if time.monotonic() > deadline:
                    late = f"{self.name} is not ready after {timeout:.0f} s"
                    raise RuntimeError(f"{late}: {self.said()}")
                time.sleep(0.02)
        except BaseException:
            self.stop()  # nobody else has it yet
            raise
        self.ready_after = time.monotonic() - self.began

    def said(self) -> str:
        return self.log.read_text(errors="replace")[-1500:]

    def stop(self) -> None:
        """End this child, and only it: politely, then for good."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(10)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()


READY_SECONDS = 180.0  # LiteLLM takes 20 on a machine that has nothing else to do
SLOWER = 10  # times that a program that is run by another may take
_runner: list[str] = []


@contextlib.contextmanager
def run_by(program: list[str]) -> Iterator[None]:
    """Within it what is started is run by this program with its options: valgrind, say."""
    _runner[:] = program
    try:
        yield
    finally:
        _runner.clear()


def start(
    name: str, port: int, argv: Sequence[str], folder: Path, ready: str, **env: str
) -> Server:
    """Start a server, and return once it answers at the path `ready`; RuntimeError if it doesn't.

    `env`: beyond the environment, whose own settings of a proxy don't count.
    """
    own = {key: value for key, value in os.environ.items() if not key.startswith("MLX_STACK_")}
    log = folder / f"{name.replace(' ', '_')}-{port}.log"
    began = time.monotonic()
    with log.open("ab") as out:
        process = subprocess.Popen(
            [*_runner, *argv],
            cwd=ROOT,
            env={**own, **env},
            stdout=out,
            stderr=out,
            stdin=subprocess.DEVNULL,
        )
    server = Server(name, port, process, log, began)
    server.wait_ready(ready, READY_SECONDS)
    return server


def serve(
    config: Mapping[str, Any],
    folder: Path,
    *,
    name: str = "proxy",
    wrapper: Sequence[str] = (),
    **env: str,
) -> Server:
    """The proxy with this configuration, on a port of its own if that names none.

    `wrapper`: what runs `mlx_stack_proxy` instead of `python -m`.
    """
    port = config.get("server", {}).get("port") or free_port()
    server = {"host": "127.0.0.1", **config.get("server", {}), "port": port}
    file = folder / f"{name.replace(' ', '_')}-{port}.yaml"
    file.write_text(yaml.safe_dump({**config, "server": server}))
    argv = [sys.executable, "-m", *wrapper, "mlx_stack_proxy", "serve", "--config", str(file)]
    return start(name, port, argv, folder, "/health", **env)
