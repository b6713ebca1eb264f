"""The proxy as a process: uvicorn, and an orderly end.

``serve()`` runs one ``Server`` here or, with ``server.workers``, one in each worker's process. At
the first SIGINT or SIGTERM the server refuses new requests, and lets the running ones finish within
``server.shutdown_grace_seconds``. Then, or at a second signal, it ends what is left.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import multiprocessing
import os
import signal
import socket
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import FrameType

import uvicorn

from .. import log, main, settings_source
from ..daemon_threads import DaemonThreads
from ..driver.services import Services
from ..reload import Reloader, SettingsOrigin
from ..server import lifetime, open_files, systemd_notify
from ..server.http_protocol import BoundedProtocol
from ..settings import Settings
from . import workers

# How many new objects start a round of the garbage collector: as many as forty requests with 400
# messages make. Python's default is 700.
GC_YOUNG_OBJECTS = 50_000
GC_TICKS = 300  # half a minute: uvicorn ticks ten times a second
MOST_THREADS = min(32, (os.cpu_count() or 1) + 4)  # as asyncio's own executor has
KEEP_ALIVE_SECONDS = 75  # longer than usual clients' pools keep an idle connection


class Server(uvicorn.Server):
    """uvicorn's server with our start, end and reloads.

    ``origin``: where changed settings are read; None: they stay, and nothing says that the process
    begins or ends. ``on_ready`` is called once, when the server listens; None: log that.
    """

    def __init__(
        self,
        services: Services,
        origin: SettingsOrigin | None = None,
        on_ready: Callable[[], None] | None = None,
    ) -> None:
        server = services.settings.server
        super().__init__(
            uvicorn.Config(
                main.build_app(services),
                host=server.host,
                port=server.port,
                http=BoundedProtocol,
                loop="uvloop",
                ws="none",
                lifespan="on",
                log_config=None,
                access_log=False,
                server_header=False,
                proxy_headers=False,
                timeout_keep_alive=KEEP_ALIVE_SECONDS,
                timeout_graceful_shutdown=1,
            )
        )
        self._services = services
        self._on_ready = on_ready or self._say_ready
        self._reloader: Reloader | None = None
        if origin is not None:
            change, report = partial(main.change, services), partial(main.note_reload, services)
            self._reloader = Reloader(origin, services.settings, change, report)
        self._deadline: float | None = None  # of the grace, in monotonic seconds
        self._signal: int | None = None  # a signal that is still to be logged
        self._ended_by: int | None = None  # the first signal, for the event at the end

    async def startup(self, sockets: list[object] | None = None) -> None:  # type: ignore[override]
        await super().startup(sockets)  # type: ignore[arg-type]
        if not self.started:
            return
        _spare_the_collector()
        loop = asyncio.get_running_loop()
        loop.set_default_executor(DaemonThreads(MOST_THREADS))
        if (parent := multiprocessing.parent_process()) is not None:  # this is a worker
            loop.add_reader(parent.sentinel, self._orphaned, parent.sentinel)
        if self._reloader is not None:
            self._reloader.start()
            if self.reloads_at_hangup:
                loop.add_signal_handler(signal.SIGHUP, self._reloader.ask)
            await lifetime.started(self._services)
            self._on_ready()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        if self._reloader is not None:
            await self._reloader.close()
            if self.started:
                await lifetime.stopped(self._services, self._ended_by)
        await super().shutdown(sockets)

    @property
    def reloads_at_hangup(self) -> bool:
        """Whether SIGHUP reloads the settings; in a terminal it means that the terminal is gone."""
        return self._reloader is not None and not sys.stderr.isatty()

    def _orphaned(self, sentinel: int) -> None:
        """End as at SIGTERM, because the workers' parent is gone, however it ended."""
        asyncio.get_running_loop().remove_reader(sentinel)
        self.handle_exit(signal.SIGTERM, None)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        if self._services.life.stopping:
            self.should_exit = True
            return
        self._services.life.stopping = True
        grace = self._services.settings.server.shutdown_grace_seconds
        self._deadline = time.monotonic() + grace
        self._ended_by = sig
        self._signal = sig  # on_tick() logs it: this may have interrupted a log line

    async def on_tick(self, counter: int) -> bool:
        life = self._services.life
        if self._signal is not None:
            log.get().info(
                "stopping",
                signal=signal.Signals(self._signal).name,
                running=life.running,
                grace_seconds=self._services.settings.server.shutdown_grace_seconds,
            )
            self._signal = None
        if self._deadline is not None and (life.running == 0 or time.monotonic() >= self._deadline):
            self.should_exit = True
        if self.should_exit:
            life.stopping = True
            for driver in list(self._services.drivers):
                driver.end()
        if counter % GC_TICKS == 0:
            gc.collect(1)
        return await super().on_tick(counter)

    def _say_ready(self) -> None:
        """Log the URL for clients and the tiers, and tell systemd that the server listens."""
        server = self._services.settings.server
        host = f"[{server.host}]" if ":" in server.host else server.host
        port = self.servers[0].sockets[0].getsockname()[1]  # the system chooses it for port 0
        tiers = list(self._services.settings.tiers)
        log.get().info("listening", url=f"http://{host}:{port}/v1", tiers=tiers)
        systemd_notify.ready()


def _spare_the_collector() -> None:
    """Keep the start's objects out of the garbage collector's rounds, and make rounds rare.

    A streamed token makes some twenty objects, none of them in a cycle; a search of all modules
    after every few tokens would cost more than the tokens. An exchange leaves no cycle either, so
    that the count of new objects hardly grows. A library's error may be in a cycle with a request's
    body: ``on_tick()`` therefore collects young objects every half minute.
    """
    gc.collect()
    gc.freeze()
    gc.collect()  # else a full round would wait until a quarter of all modules' objects is new
    gc.set_threshold(GC_YOUNG_OBJECTS, 20, 50)


def serve(settings: Settings, log_to: Path | None, origin: SettingsOrigin) -> int:
    """Run until a signal; return the process's exit code. Raises ``SettingsError``.

    ``log_to``: the log file of this process, which its workers take over. ``origin``: where changed
    settings are read.
    """
    workers.check_servable(settings)
    log.configure(settings.observability)
    if passed_over := settings_source.service_links(os.environ):
        log.get().info("service_links_passed_over", variables=passed_over)
    if keys := origin.retired():
        log.get().warning("settings_retired", keys=keys)
    if settings.server.workers > 1:
        return workers.Workers(work, settings, log_to, origin).run()
    return work(settings, None, None, origin)


def work(
    settings: Settings,
    listener: socket.socket | None,
    on_ready: Callable[[], None] | None,
    origin: SettingsOrigin,
) -> int:
    """Serve in this process; return the exit code.

    ``listener``: the socket of the workers' parent, whom ``on_ready`` informs; None: bind host and
    port, and say that all is ready.
    """
    log.configure(settings.observability)
    server = Server(main.build_services(settings), origin, on_ready)
    open_files.raise_limit()
    if server.reloads_at_hangup:
        signal.signal(signal.SIGHUP, signal.SIG_IGN)  # until the server handles it
    # If the start fails (a taken port, say), uvicorn raises SystemExit, which passes through.
    with contextlib.suppress(asyncio.CancelledError):
        server.run(None if listener is None else [listener])
    return 0 if server.started else 1
