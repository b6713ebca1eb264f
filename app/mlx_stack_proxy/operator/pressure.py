"""``mlx-stack-proxy pressure``: print this machine's memory pressure, or serve it over HTTP.

A proxy in a container can't read the memory pressure of the Mac that it runs on. Run
``pressure --serve`` on the Mac, and give its URL to the proxy as ``memory_pressure.source``.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import time
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import orjson
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from .. import log
from ..memory_pressure.probe import MemoryProbe
from ..memory_pressure.readers import open_reader
from ..printable import printable
from ..settings import MemoryPressureSettings
from ..settings_source import load
from . import CommandError

SWAP_SECONDS = 1.0  # between two readings, whose difference shows how fast the swap grows


def add_pressure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--serve", action="store_true", help="serve it over HTTP at / until Ctrl-C")
    parser.add_argument("--host", default="127.0.0.1", help="with --serve; default: %(default)s")
    parser.add_argument("--port", type=int, default=4110, help="with --serve; default: %(default)s")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Return the exit code. Raises ``CommandError`` if the level can't be read here."""
    settings = load(args.config)
    rules = settings.reliability.memory_pressure
    if not args.serve:
        # The log would only repeat the line that is printed.
        log.configure(replace(settings.observability, log_level="error"))
        probe = probe_of(rules, "auto" if rules.source == "off" else rules.source)
        return asyncio.run(_once(probe, as_json=args.json))
    log.configure(settings.observability)
    probe, host, port = probe_of(rules), args.host, args.port
    if probe.source is None:
        raise CommandError(status_and_body(probe)[1]["error"])
    url = f"http://{host}:{port}/"
    log.get().info("serving_memory_pressure", url=url, source=probe.source)
    quiet: Any = {"log_config": None, "access_log": False, "server_header": False}
    uvicorn.run(build(probe), host=host, port=port, ws="none", lifespan="on", **quiet)
    return 0


def probe_of(rules: MemoryPressureSettings, source: str = "auto") -> MemoryProbe:
    """Return a probe with these rules, even if they are turned off for the proxy itself."""
    rules = replace(rules, enabled=True, source=source)
    return MemoryProbe(rules, open_reader(source), time.monotonic)


def status_and_body(probe: MemoryProbe) -> tuple[int, dict[str, Any]]:
    """Return the HTTP status and the body: the last reading's level, or why there is none.

    The level is not damped: the proxy that reads it does the damping itself.
    """
    if probe.source is None:
        return 503, {"error": "this machine reports no memory pressure"}
    if probe.reading is None or probe.trouble is not None:
        return 503, {"error": probe.trouble or "not read yet", "source": probe.source}
    level, cause = probe.raw
    found = {"level": level.word, "cause": cause or None, "source": probe.source}
    return 200, {**found, "reading": probe.reading.as_dict()}


async def _once(probe: MemoryProbe, *, as_json: bool) -> int:
    try:
        await probe.look()
        if probe.reading is not None and probe.reading.swap:
            await asyncio.sleep(SWAP_SECONDS)
            await probe.look()
    finally:
        await probe.close()
    status, body = status_and_body(probe)
    if as_json:
        print(orjson.dumps(body).decode())
        return 0 if status == 200 else 1
    if status != 200:
        raise CommandError(body["error"])
    cause = f", because of {body['cause']}" if body["cause"] else ""
    print(printable(f"{body['level']}{cause} (read from: {body['source']})"))
    return 0


def build(probe: MemoryProbe) -> Starlette:
    """Return the app of ``--serve``, which answers ``GET /``."""

    async def level(_: Request) -> Response:
        status, body = status_and_body(probe)
        return Response(orjson.dumps(body), status, media_type="application/json")

    @contextlib.asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        probe.start()
        try:
            yield
        finally:
            await probe.close()

    return Starlette(routes=[Route("/", level)], lifespan=lifespan)
