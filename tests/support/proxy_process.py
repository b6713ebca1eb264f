"""Runs ``mlx-stack-proxy serve`` as a process of its own, for tests that kill or restart it."""

from __future__ import annotations

import asyncio
import contextlib
import resource
import sys
from pathlib import Path
from typing import Any, Self

import httpx
import yaml

from tests.support.ports import free_port
from tests.support.running_proxy import proxy_config

GENEROUS = 90  # seconds for its start or end, so long that only a hang fails


class ProxyProcess:
    """A proxy process that keeps its port over restarts; the end of the block kills it.

    ``changes``: as for ``proxy_config``. ``options``: further options of the command.
    ``open_files``: the process's soft limit on open files at its start.
    """

    def __init__(
        self,
        folder: Path,
        upstream: str,
        changes: dict[str, Any] | None = None,
        *,
        options: tuple[str, ...] = (),
        open_files: int | None = None,
    ) -> None:
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self._upstream = upstream
        self.file = folder / "proxy.yaml"
        self._options = options
        self._open_files = open_files
        self._process: asyncio.subprocess.Process | None = None
        self.configure(changes)

    @property
    def process(self) -> asyncio.subprocess.Process:
        assert self._process is not None, "it was not started"
        return self._process

    def configure(self, changes: dict[str, Any] | None = None) -> None:
        """Write the configuration file anew."""
        config = proxy_config(self._upstream, {"server.port": self.port, **(changes or {})})
        self.file.write_text(yaml.safe_dump(config), encoding="utf-8")

    def client(self) -> httpx.AsyncClient:
        return httpx.AsyncClient(base_url=self.url, trust_env=False, timeout=GENEROUS, verify=False)

    async def start(self, stderr: int = asyncio.subprocess.DEVNULL) -> None:
        """Start the process and wait until it answers."""
        command = (sys.executable, "-m", "mlx_stack_proxy", "serve", "--config", str(self.file))
        self._process = await asyncio.create_subprocess_exec(
            *command,
            *self._options,
            stdout=asyncio.subprocess.DEVNULL,
            stderr=stderr,
            preexec_fn=self._limit_open_files,
        )
        async with asyncio.timeout(GENEROUS), self.client() as client:
            while True:
                assert self._process.returncode is None, "it ended by itself"
                with contextlib.suppress(httpx.TransportError):
                    await client.get("/health")
                    return
                await asyncio.sleep(0.05)

    def _limit_open_files(self) -> None:
        if self._open_files is not None:
            _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
            resource.setrlimit(resource.RLIMIT_NOFILE, (self._open_files, hard))

    async def end(self, how: int) -> int:
        """Send the signal ``how``, wait for the end, and return the exit code."""
        if self.process.returncode is None:
            self.process.send_signal(how)
        return await self.ended()

    async def ended(self) -> int:
        async with asyncio.timeout(GENEROUS):
            return await self.process.wait()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._process is not None:
            if self._process.returncode is None:
                self._process.kill()
            await self._process.wait()
