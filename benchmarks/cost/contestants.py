"""What is measured side by side, and how each is started; what isn't there says so."""

from __future__ import annotations

import argparse
import importlib.util
import shutil
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks import servers
from benchmarks.records import ROOT
from benchmarks.servers import Server
from mlx_stack_proxy.operator.local_stack import children
from mlx_stack_proxy.operator.local_stack.run_directory import RunDirectory
from mlx_stack_proxy.operator.local_stack.tiers import LocalTier
from mlx_stack_proxy.settings import DEFAULT_TIERS
from tests.support.ports import free_port

from . import load

HTTPX, FRAME, PROXY = "httpx relay", "its frame", "this proxy"
PORTKEY, LITELLM = "Portkey", "LiteLLM"
FOREIGN = ROOT / "build" / "bench"  # where `make bench-install` puts what isn't ours
INSTALL = "make bench-install"
GATEWAY = "node_modules/@portkey-ai/gateway/build/start-server.js"
STREAM_LIMIT = 4096
# Everything as it comes, but for the two limits that a load of thousands would meet.
TIERS = {name: {**tier, "max_concurrency": STREAM_LIMIT} for name, tier in DEFAULT_TIERS.items()}
OFF = {"enabled": False}
NO_STAGES: dict[str, Any] = {
    "observability": {"log_level": "warning"},
    "state": {"backend": "memory"},
    "reliability": dict.fromkeys(
        ("escalation", "loop_detection", "tool_validation", "token_budget"), OFF
    ),
}


class Missing(Exception):
    """Not installed; the text says what would help."""


@dataclass(frozen=True)
class Contestant:
    """`start`: takes the upstream's port and a folder of its own.

    `stays`: it is started once, because starting takes long, or it gets faster while it runs; all
    others start anew in each round. `heavy`: needs ten times the CPU, so it gets less of the load.
    `first_text`: whether its first text is timed. `open_streams`: how many its memory is taken
    with. `warm_up`: how many requests of each kind it gets before the first round, for a compiler
    that needs them.
    """

    name: str
    start: Callable[[int, Path], Server]
    stays: bool = False
    heavy: bool = False
    first_text: bool = True
    open_streams: int = 1000
    warm_up: int = 0


def start_upstream(folder: Path) -> Server:
    port = free_port()
    argv = [sys.executable, "-m", "benchmarks.upstream", str(port)]
    return servers.start("upstream", port, argv, folder, "/v1/models")


def relay(upstream: int, folder: Path) -> Server:
    port = free_port()
    argv = [sys.executable, "-m", "uvicorn", "--factory", "benchmarks.cost.relay:relay"]
    argv += ["--port", str(port), "--loop", "uvloop", "--log-level", "warning", "--no-access-log"]
    address = f"http://127.0.0.1:{upstream}"
    return servers.start(HTTPX, port, argv, folder, "/v1/models", RELAY_UPSTREAM=address)


def proxy(upstream: int, folder: Path, name: str = PROXY, **changes: Any) -> Server:
    """As anyone starts it. `changes`: sections of the settings."""
    address = {"base_url": f"http://127.0.0.1:{upstream}"}
    port = free_port()
    state = {"path": str(folder / f"state-{port}.db")}
    config = {"server": {"port": port}, "upstream": address, "tiers": TIERS, "state": state}
    return servers.serve({**config, **changes}, folder, name=name)


def portkey(upstream: int, folder: Path) -> Server:
    """Portkey's gateway on Node, asked for the provider `openai` at the upstream's address."""
    script, node = FOREIGN / "portkey" / GATEWAY, shutil.which("node")
    if node is None:
        raise Missing("there is no node")
    if not script.exists():
        raise Missing(f"not installed ({INSTALL})")
    port = free_port()
    argv = [node, str(script), f"--port={port}", "--headless"]
    server = servers.start(PORTKEY, port, argv, folder, "/", NODE_ENV="production")
    server.headers = (
        f"x-portkey-provider: openai\r\nx-portkey-custom-host: http://127.0.0.1:{upstream}/v1\r\n"
    )
    return server


def litellm(upstream: int, folder: Path) -> Server:
    """LiteLLM alone, started as ``up`` starts it."""
    if importlib.util.find_spec("litellm") is None:
        raise Missing("not installed (make run installs it)")
    port, run = free_port(), RunDirectory(folder / "litellm")
    tier = LocalTier("fast", "fast", upstream, False)
    children.write_yaml(run.litellm_config, children.litellm_config([tier]))
    spec = children.litellm(port, load.KEY, run)
    path = "/health/liveliness"
    return servers.start(LITELLM, port, spec.command, folder, path, **spec.environment)


ALL = (
    Contestant(HTTPX, relay),
    # No stage decides anything, and nothing is kept: the way of a request through the proxy.
    Contestant(FRAME, partial(proxy, name=FRAME, **NO_STAGES), first_text=False),
    Contestant(PROXY, proxy),
    Contestant(PORTKEY, portkey, stays=True, warm_up=2000),
    Contestant(LITELLM, litellm, stays=True, heavy=True, open_streams=200),
)


def listed(text: str) -> list[str]:
    return [part.strip() for part in text.split(",") if part.strip()]


def choose(
    parser: argparse.ArgumentParser, argv: list[str] | None, kinds: Sequence[str]
) -> argparse.Namespace:
    """The options, with `contestants`: those whose names hold one of the parts; all for none."""
    names = ", ".join(one.name for one in ALL)
    parser.add_argument(
        "--only", type=listed, default=[], metavar="NAME,…", help=f"parts of names: {names}"
    )
    parser.add_argument(
        "--kinds", type=listed, default=[], metavar="KIND,…", help=f"of: {', '.join(kinds)}"
    )
    options = parser.parse_args(argv)
    for kind in options.kinds:
        if kind not in kinds:
            parser.error(f"unknown kind {kind!r}; there are {', '.join(kinds)}")
    found = {
        part: [one for one in ALL if part.lower() in one.name.lower()] for part in options.only
    }
    for part, some in found.items():
        if not some:
            parser.error(f"nothing is called {part!r}; there are {names}")
    wanted = [one for some in found.values() for one in some]
    options.contestants = [one for one in ALL if one in wanted or not wanted]
    return options
