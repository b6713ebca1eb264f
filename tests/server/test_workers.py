"""`server.workers`: several processes on one port and one Redis; one that ends comes again."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import sys
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest

from mlx_stack_proxy.operator import process, workers
from mlx_stack_proxy.reload import SettingsOrigin
from mlx_stack_proxy.settings import Settings
from mlx_stack_proxy.settings_source import SettingsError
from tests.server.asking import CHAT, body
from tests.support.proxy_process import GENEROUS, ProxyProcess
from tests.support.redis_server import RedisServer
from tests.support.replies import USAGE, text_stream
from tests.support.running_proxy import proxy_config
from tests.support.scripted_server import ScriptedServer
from tests.support.waiting import until


@pytest.mark.parametrize("backend", ["sqlite", "memory"])
def test_a_state_of_one_process_is_refused(backend: str) -> None:
    changes = {"server.workers": 2, "state.backend": backend}
    settings = Settings(**proxy_config("http://127.0.0.1:9", changes))
    with pytest.raises(SettingsError, match=rf"server\.workers: 2 .*`{backend}`.*`redis`"):
        process.serve(settings, None, SettingsOrigin(None))
    one = Settings(**proxy_config("http://127.0.0.1:9", {"state.backend": backend}))
    workers.check_servable(one)


def is_gone(process: psutil.Process) -> bool:
    try:
        return process.status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


class Serving(ProxyProcess):
    """Two workers on one Redis, and what they log."""

    def __init__(self, upstream: ScriptedServer, redis: RedisServer, folder: Path) -> None:
        self.log = folder / "proxy.log"
        self.settings = {
            "server.workers": 2,
            "server.shutdown_grace_seconds": 5,
            "state.backend": "redis",
            "state.redis_url": redis.url,
        }
        options = ("--log-file", str(self.log))
        super().__init__(folder, upstream.url, self.settings, options=options)
        self._orphans: list[psutil.Process] = []

    def workers(self) -> list[psutil.Process]:
        """Those that run; not multiprocessing's own helper."""
        with contextlib.suppress(psutil.NoSuchProcess):
            found = psutil.Process(self.process.pid).children()
            return [p for p in found if "spawn_main" in " ".join(p.cmdline())]
        return []

    async def ask(self, session: str = "shared") -> httpx.Response:
        """Over a connection of its own, so that any worker may take it."""
        async with self.client() as one:
            return await one.post(CHAT, json=body(), headers={"X-MLX-Stack-Session": session})

    async def get(self, path: str) -> Any:
        async with self.client() as one:
            return (await one.get(path)).json()

    async def start(self, stderr: int = asyncio.subprocess.DEVNULL) -> None:
        await super().start(stderr)
        await until(lambda: len(self.workers()) == 2, GENEROUS)
        self._orphans = self.workers()

    async def __aexit__(self, *_: object) -> None:
        if self._process is not None:
            self._orphans += self.workers()
        await super().__aexit__()
        for one in self._orphans:
            with contextlib.suppress(psutil.NoSuchProcess):
                one.kill()


async def test_two_workers_share_a_port_and_what_they_count(
    upstream: ScriptedServer, redis: RedisServer, tmp_path: Path
) -> None:
    upstream.always(text_stream("Hello"))
    async with Serving(upstream, redis, tmp_path) as proxy:
        await proxy.start()
        for stopped in proxy.workers():  # the other one answers
            stopped.suspend()
            assert (await proxy.ask()).status_code == 200
            stopped.resume()
        session = await proxy.get("/mlx-stack/sessions/shared")
        assert session["turns"] == 2
        assert session["used"] == 2 * USAGE["total_tokens"]

        killed = proxy.workers()[0]
        killed.kill()
        await until(lambda: len([p for p in proxy.workers() if p.pid != killed.pid]) == 2, GENEROUS)
        assert (await proxy.ask("another")).status_code == 200
        assert "worker_ended" in proxy.log.read_text()

        last = proxy.workers()
        assert await proxy.end(signal.SIGTERM) == 0
        assert all(map(is_gone, last))


def test_a_taken_port_is_a_line_and_an_exit_code(
    capfd: pytest.CaptureFixture[str],
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        changes = {
            "server.port": taken.getsockname()[1],
            "server.workers": 2,
            "state.backend": "redis",
            "state.redis_url": "redis://127.0.0.1:9/0",
        }
        settings = Settings(**proxy_config("http://127.0.0.1:9", changes))
        assert process.serve(settings, None, SettingsOrigin(None)) == 1
    assert "no_port" in capfd.readouterr().err


async def test_a_hangup_reloads_every_worker_and_none_outlives_its_parent(
    upstream: ScriptedServer, redis: RedisServer, tmp_path: Path
) -> None:
    async with Serving(upstream, redis, tmp_path) as proxy:
        await proxy.start()
        proxy.configure({**proxy.settings, "tiers.fast.model": "standard"})
        proxy.process.send_signal(signal.SIGHUP)
        await until(
            lambda: proxy.log.read_text().count('"event":"settings_changed"') == 2, GENEROUS
        )
        assert len(proxy.workers()) == 2
        upstream.always(text_stream("Hello"))
        assert (await proxy.ask()).status_code == 200
        assert upstream.calls[-1].json()["model"] == "standard"

        last = proxy.workers()
        proxy.process.kill()
        await proxy.ended()
        await until(lambda: all(map(is_gone, last)), GENEROUS)


@pytest.mark.parametrize(("terminal", "told"), [(False, signal.SIGHUP), (True, signal.SIGTERM)])
def test_a_hangup_ends_them_only_where_a_terminal_is_gone(
    terminal: bool, told: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Process:
        pid, exitcode = 7, None

    sent: list[tuple[int, int]] = []
    monkeypatch.setattr(os, "kill", lambda pid, sig: sent.append((pid, sig)))
    monkeypatch.setattr(sys.stderr, "isatty", lambda: terminal)
    settings = Settings(**proxy_config("http://127.0.0.1:9"))
    them = workers.Workers(process.work, settings, None, SettingsOrigin(None))
    them._running[1] = Process()
    them._pass_on(signal.SIGHUP, None)
    assert sent == [(7, told)]
    assert them._stopping is terminal
