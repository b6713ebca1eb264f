"""Real agents' trajectories, replayed through a proxy that lacks a row.

The script beside the recorded runs does it all; this starts the proxy that it asks.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from benchmarks.ablation.rows import Row
from benchmarks.measure.corpora import CORPORA

SCRIPT = CORPORA / "trajectories" / "score.py"
START_SECONDS = 60.0
Json = dict[str, Any]
# What is better smaller, of each form: the key among its figures.
_WORSE = ("lost", "changed", "false_breaks", "hints_outside", "hints_told_again")


def figures(row: Row | None, sample: int) -> dict[str, int]:
    """What is lost, broken, told and missed in all forms together, fewer being better.

    ``sample``: one trajectory in so many, and all that hold a loop.
    """
    with tempfile.TemporaryDirectory() as folder:
        upstream, port = _free_port(), _free_port()
        out = Path(folder) / "figures.json"
        with _proxy(row, Path(folder), port, upstream) as url:
            asked = [f"--proxy={url}", f"--upstream-port={upstream}", f"--json={out}"]
            command = [sys.executable, str(SCRIPT), f"--sample={sample}", *asked]
            # It waits for the proxy by itself, and the proxy asks nothing before it is asked.
            subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        return _summed(json.loads(out.read_text("utf-8")))


def _summed(whole: Json) -> dict[str, int]:
    found = dict.fromkeys(_WORSE, 0)
    missed = told = 0
    for form in whole["forms"].values():
        for key in _WORSE:
            found[key] += form[key]
        missed += form["loops"]["all"]["missed"]
        told += form["loops"]["all"]["told_only"]
    pointless = whole["forms"]["calls"]["second_opinions_pointless"]
    more = {"loops_missed": missed, "loops_only_told": told, "opinions_pointless": pointless}
    return {**found, **more, "lost_to_a_limit": whole["total"]["lost_to_a_limit"]}


@contextmanager
def _proxy(row: Row | None, folder: Path, port: int, upstream: int) -> Iterator[str]:
    tier = {"context_window": 2_000_000, "max_concurrency": 64}
    config = {
        "server": {"port": port},
        "upstream": {"base_url": f"http://127.0.0.1:{upstream}"},
        "tiers": {name: {"model": name, **tier} for name in ("fast", "standard")},
        "reliability": {
            "escalation": {"degrade": {"failures": 1_000_000}},
            "memory_pressure": {"enabled": False},
        },
        "state": {"backend": "memory"},
        "observability": {"log_level": "error"},
    }
    file = folder / "config.yaml"
    file.write_text(json.dumps(config), "utf-8")
    program = ["benchmarks.ablation.proxy", row.kind, row.name] if row else ["mlx_stack_proxy"]
    command = [sys.executable, "-m", *program, "serve", "--config", str(file)]
    env = {key: value for key, value in os.environ.items() if not key.startswith("MLX_STACK_")}
    process = subprocess.Popen(command, env=env)
    try:
        _wait(process, f"http://127.0.0.1:{port}/health")
        yield f"http://127.0.0.1:{port}"
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(30)


def _wait(process: subprocess.Popen[bytes], url: str) -> None:
    """Until it answers. Raises RuntimeError where it ends before, or never does."""
    give_up = time.monotonic() + START_SECONDS
    while time.monotonic() < give_up and process.poll() is None:
        try:
            with urllib.request.urlopen(url, timeout=1):
                return
        except OSError:
            time.sleep(0.1)
    raise RuntimeError("the proxy did not start")


def _free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        port: int = one.getsockname()[1]
        return port
