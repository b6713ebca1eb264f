"""What is measured side by side, and how each is started; what isn't there says so."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.measure import load, servers
from benchmarks.measure.servers import Server
from tests.support.ports import free_port

AIOHTTP, HTTPX, FRAME, PROXY = "aiohttp relay", "httpx relay", "its frame", "this proxy"
TRANSPORT = "transport relay"  # httpx's transport without its client, as the proxy calls it
PORTKEY, LITELLM, FORGE = "Portkey", "LiteLLM", "forge"
TOOLRAILS, CRUXIAL = "toolrails", "cruxial"  # only in `benchmarks.measure.beside`
FOREIGN = servers.ROOT / "build" / "bench"  # where `make bench-install` puts what isn't ours
INSTALL = "make bench-install"
GATEWAY = "node_modules/@portkey-ai/gateway/build/start-server.js"
FORGE_BUDGET = 1_000_000  # tokens: it is not to compact the history that it is measured with


class Missing(Exception):
    """Not installed; the text says what would help."""


@dataclass(frozen=True)
class Contestant:
    """`start`: takes the upstream's port and a folder of its own.

    `stays`: it is started once, because starting takes long, or it gets faster while it runs; all
    others start anew in each round. `heavy`: needs ten times the CPU, so it gets less of the load.
    `streams`: whether it passes chunks on as they come. `first_text`: with how many streams its
    first text is timed. `open_streams`: how many its memory is taken with, 0: only idle.
    `by_name`: only where it is asked for. `warm_up`: how many requests of each kind it gets before
    the first round, for a compiler that needs them.
    """

    name: str
    start: Callable[[int, Path], Server]
    stays: bool = False
    heavy: bool = False
    streams: bool = True
    first_text: tuple[int, ...] = (1, 16, 100)
    open_streams: int = 1000
    by_name: bool = False
    warm_up: int = 0


def portkey(upstream: int, folder: Path) -> Server:
    """Portkey's gateway on Node, asked for the provider `openai` at the upstream's address."""
    script, node = FOREIGN / "portkey" / GATEWAY, shutil.which("node")
    if node is None:
        raise Missing("there is no node")
    if not script.exists():
        raise Missing(f"not installed ({INSTALL})")
    port = free_port()
    argv = [node, str(script), f"--port={port}", "--headless"]
    server = servers.start(PORTKEY, port, argv, folder, NODE_ENV="production")
    server.headers = (
        f"x-portkey-provider: openai\r\nx-portkey-custom-host: http://127.0.0.1:{upstream}/v1\r\n"
    )
    server.wait_ready("/", 60)
    return server


def forge(upstream: int, folder: Path) -> Server:
    """forge's proxy. It closes each connection, and calls upstream without streaming."""
    python = FOREIGN / "forge" / "bin" / "python"
    if not python.exists():
        raise Missing(f"not installed ({INSTALL})")
    port = free_port()
    argv = [str(python), "-m", "forge.proxy", "--backend-url", f"http://127.0.0.1:{upstream}"]
    argv += ["--port", str(port), "--budget-tokens", str(FORGE_BUDGET)]
    server = servers.start(FORGE, port, argv, folder)
    server.keep_alive = False
    server.wait_ready("/health", 60)
    return server


def litellm(upstream: int, folder: Path) -> Server:
    server = servers.start_litellm(upstream, folder, load.KEY)
    if server is None:
        raise Missing("not installed (make run installs it)")
    server.name = LITELLM
    return server


ALL = (
    Contestant(AIOHTTP, lambda port, folder: servers.start_relay("aiohttp", port, folder)),
    Contestant(HTTPX, lambda port, folder: servers.start_relay("httpx", port, folder)),
    Contestant(
        TRANSPORT,
        lambda port, folder: servers.start_relay("transport", port, folder),
        by_name=True,
    ),
    Contestant(
        FRAME, lambda port, folder: servers.start_proxy(port, folder, stages=False), first_text=()
    ),
    Contestant(PROXY, servers.start_proxy),
    Contestant(PORTKEY, portkey, stays=True, warm_up=2000),
    Contestant(LITELLM, litellm, stays=True, heavy=True, open_streams=200),
    # Its first text is its last: one stream tells it all, and one that waits has said nothing.
    Contestant(FORGE, forge, streams=False, first_text=(1,), open_streams=0),
)


def chosen(names: Sequence[str]) -> list[Contestant]:
    """Those whose names hold one of the parts; the usual ones for none. ValueError if unknown."""
    for part in names:
        if not any(part.lower() in one.name.lower() for one in ALL):
            known = ", ".join(one.name for one in ALL)
            raise ValueError(f"nothing is called {part!r}; there are {known}")
    if not names:
        return [one for one in ALL if not one.by_name]
    return [one for one in ALL if any(part.lower() in one.name.lower() for part in names)]
