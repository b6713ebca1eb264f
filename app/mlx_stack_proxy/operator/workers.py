"""Several worker processes of one proxy on one port: ``server.workers``.

The parent binds the port and starts the workers, which all accept connections on it. The parent
serves nothing itself: it passes signals on, and replaces a worker that ends. A worker whose parent
is gone ends as at SIGTERM (``process.py``).
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import socket
import sys
import time
from collections.abc import Callable
from multiprocessing.connection import Connection, wait
from pathlib import Path
from types import FrameType
from typing import Any
from urllib.parse import urlsplit

from .. import log
from ..reload import SettingsOrigin
from ..server import systemd_notify
from ..settings import Settings
from ..settings_source import SettingsError
from ..telemetry import log_file

BACKLOG = 2048
# How long to wait before a worker is replaced: one that always fails must not spin.
RESTART_SECONDS = 1.0
_SPAWN = multiprocessing.get_context("spawn")

# `process.work()`: a module's function, because the worker's process imports it by name.
Work = Callable[[Settings, socket.socket, Callable[[], None], SettingsOrigin], int]


def check_servable(settings: Settings) -> None:
    """Raise ``SettingsError`` if these settings are valid, but ``serve`` can't work with them."""
    own, upstream = urlsplit(settings.server.url), urlsplit(settings.upstream.base_url)
    hosts = {own.hostname, upstream.hostname}
    if own.port == upstream.port and (len(hosts) == 1 or hosts == {"127.0.0.1", "localhost"}):
        problem = "is this proxy's own address; give LiteLLM's"
        raise SettingsError(
            [f"upstream.base_url: {settings.upstream.base_url} {problem}"], "settings"
        )
    count, backend = settings.server.workers, settings.state.backend
    if count > 1 and backend != "redis":
        raise SettingsError(
            [
                f"server.workers: {count} processes need a shared state; state.backend "
                f"`{backend}` works for one process only: use `redis`, or one worker"
            ],
            "settings",
        )


class Workers:
    """The parent process: starts the workers, and replaces those that end, until a signal."""

    def __init__(
        self, work: Work, settings: Settings, log_to: Path | None, origin: SettingsOrigin
    ) -> None:
        self._work = work
        self._settings = settings
        self._log_to = log_to  # the log file, which each worker takes over
        self._origin = origin
        self._running: dict[int, Any] = {}  # the workers' processes by their sentinels
        # A worker writes into this pipe when it is ready.
        self._from_workers, self._to_parent = _SPAWN.Pipe(duplex=False)
        self._ready = 0  # how many workers have ever become ready, replaced ones included
        self._stopping = False

    def run(self) -> int:
        """Run until all workers have ended; return the exit code, 0 if all had become ready."""
        server = self._settings.server
        family = socket.AF_INET6 if ":" in server.host else socket.AF_INET
        try:
            listener = socket.create_server(
                (server.host, server.port), family=family, backlog=BACKLOG
            )
        except OSError as error:
            log.get().error("no_port", host=server.host, port=server.port, error=error.strerror)
            return 1
        with listener:
            for sig in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
                signal.signal(sig, self._pass_on)
            log.get().info("workers", count=server.workers, port=listener.getsockname()[1])
            for _ in range(server.workers):
                self._start(listener)
            while self._running:
                for ready in wait([*self._running, self._from_workers]):
                    if isinstance(ready, int):
                        self._worker_ended(self._running.pop(ready), listener)
                        continue
                    self._from_workers.recv_bytes()
                    self._ready += 1
                    if self._ready == server.workers:
                        systemd_notify.ready()
        return 0 if self._ready >= server.workers else 1

    def _pass_on(self, sig: int, frame: FrameType | None) -> None:
        if sig != signal.SIGHUP or sys.stderr.isatty():
            self._stopping = True
            if sig == signal.SIGHUP:  # the terminal was closed
                sig = signal.SIGTERM
        for process in list(self._running.values()):
            if process.pid is not None and process.exitcode is None:
                os.kill(process.pid, sig)

    def _start(self, listener: socket.socket) -> None:
        inputs = (self._settings, listener, self._origin)
        process = _SPAWN.Process(
            target=_run, args=(self._work, inputs, self._log_to, self._to_parent)
        )
        # The worker inherits that SIGHUP is ignored, until it can handle one. A signal missed in
        # that time loses nothing, because the worker reads the settings file again once it serves.
        hangup = signal.signal(signal.SIGHUP, signal.SIG_IGN)
        process.start()
        signal.signal(signal.SIGHUP, hangup)
        self._running[process.sentinel] = process
        if self._stopping:  # a signal came before `_running` had this process
            process.terminate()

    def _worker_ended(self, process: Any, listener: socket.socket) -> None:
        process.join()
        if self._stopping:
            return
        log.get().error("worker_ended", worker=process.pid, exit_code=process.exitcode)
        if self._ready < self._settings.server.workers:
            self._pass_on(signal.SIGTERM, None)  # a first start that fails would fail again
            return
        time.sleep(RESTART_SECONDS)
        if not self._stopping:
            self._start(listener)


def _run(
    work: Work,
    inputs: tuple[Settings, socket.socket, SettingsOrigin],
    log_to: Path | None,
    ready: Connection,
) -> None:
    os.setpgrp()  # Ctrl-C reaches the parent alone, which passes it on
    if log_to is not None:
        log_file.take_over(log_to)

    def say() -> None:
        ready.send_bytes(b"ready")
        ready.close()

    settings, listener, origin = inputs
    raise SystemExit(work(settings, listener, say, origin))
