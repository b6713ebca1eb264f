"""Starts what is measured, each in a process of its own, and asks what it has used."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import secrets
import shutil
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import yaml

from mlx_stack_proxy.operator.local_stack.configs import CALLBACK
from mlx_stack_proxy.settings import DEFAULT_TIERS
from tests.support.ports import free_port

ROOT = Path(__file__).parents[2]
STREAM_LIMIT = 4096
# Everything as it comes, but for the two limits that a load of thousands would meet.
PROXY_CONFIG: dict[str, Any] = {
    "server": {"host": "127.0.0.1"},
    "upstream": {"max_connections": STREAM_LIMIT},
    "tiers": {
        name: {**tier, "max_concurrency": STREAM_LIMIT} for name, tier in DEFAULT_TIERS.items()
    },
}
NO_STAGES = {
    "observability": {"log_level": "warning"},
    "state": {"backend": "memory"},
    "reliability": {
        "escalation": {"enabled": False},
        "loop_detection": {"enabled": False},
        "tool_validation": {"enabled": False},
        "token_budget": {"enabled": False},
    },
}


def cpu_seconds(process: psutil.Process) -> float:
    """User and system time. On Linux from the process's own clock: psutil's has ticks of 10 ms."""
    if sys.platform == "linux":
        return time.clock_gettime((~process.pid << 3) | 2)  # as clock_getcpuclockid() makes it
    times = process.cpu_times()
    return times.user + times.system


@dataclass
class Server:
    """A child that serves on `port`; its output is in `log`.

    `headers`: what it wants in a request, each a line with its end. `keep_alive`: whether a
    connection serves more than one. `began`: time.monotonic() of its start; `ready_after`: seconds
    from there until it answered.
    """

    name: str
    port: int
    process: subprocess.Popen[bytes]
    log: Path
    began: float = 0.0
    ready_after: float = 0.0
    headers: str = ""
    keep_alive: bool = True

    def __post_init__(self) -> None:
        self.measured = psutil.Process(self.process.pid)

    def cpu_seconds(self) -> float:
        """User and system time of the process, and of children that still run."""
        family = [self.measured, *self.measured.children(recursive=True)]
        return sum(cpu_seconds(process) for process in family)

    def rss(self) -> int:
        family = [self.measured, *self.measured.children(recursive=True)]
        return sum(process.memory_info().rss for process in family)

    def wait_ready(self, path: str, timeout: float, headers: dict[str, str] | None = None) -> None:
        """Return when it answers with 200; end it and raise RuntimeError if it doesn't in time."""
        try:
            self._wait(path, timeout, headers or {})
        except BaseException:
            self.stop()  # nobody else has it yet
            raise

    def _wait(self, path: str, timeout: float, headers: dict[str, str]) -> None:
        deadline = time.monotonic() + timeout
        url = f"http://127.0.0.1:{self.port}{path}"
        while True:
            if self.process.poll() is not None:
                raise RuntimeError(
                    f"{self.name} ended with {self.process.returncode}: {self.said()}"
                )
            try:
                request = urllib.request.Request(url, headers=headers)
                with urllib.request.urlopen(request, timeout=2):
                    self.ready_after = time.monotonic() - self.began
                    return
            except (urllib.error.URLError, OSError):
                if time.monotonic() > deadline:
                    raise RuntimeError(
                        f"{self.name} is not ready after {timeout:.0f} s: {self.said()}"
                    ) from None
                time.sleep(0.02)

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


_runner: list[str] = []


@contextlib.contextmanager
def run_by(program: list[str]) -> Iterator[None]:
    """Within it what is started is run by this program with its options: valgrind, say."""
    _runner[:] = program
    try:
        yield
    finally:
        _runner.clear()


def start(name: str, port: int, argv: list[str], folder: Path, **env: str) -> Server:
    log = folder / f"{name.replace(' ', '_')}-{port}.log"
    began = time.monotonic()
    with log.open("wb") as out:
        process = subprocess.Popen(
            [*_runner, *argv],
            cwd=ROOT,
            env={**os.environ, **env},
            stdout=out,
            stderr=out,
            stdin=subprocess.DEVNULL,
        )
    return Server(name, port, process, log, began)


def start_upstream(folder: Path) -> Server:
    port = free_port()
    argv = [sys.executable, "-m", "benchmarks.measure.fast_upstream", str(port)]
    server = start("upstream", port, argv, folder)
    server.wait_ready("/v1/models", 60)
    return server


def start_relay(kind: str, upstream: int, folder: Path) -> Server:
    """`kind` is `aiohttp`, `httpx` or `transport`: a factory in relays.py."""
    port = free_port()
    argv = [sys.executable, "-m", "uvicorn", "--factory", f"benchmarks.measure.relays:{kind}_relay"]
    argv += ["--port", str(port), "--loop", "uvloop", "--log-level", "warning", "--no-access-log"]
    address = f"http://127.0.0.1:{upstream}"
    server = start(f"{kind} relay", port, argv, folder, RELAY_UPSTREAM=address)
    server.wait_ready("/v1/models", 60)
    return server


def start_proxy(
    upstream: int,
    folder: Path,
    wrapper: list[str] | None = None,
    *,
    stages: bool = True,
    changes: dict[str, Any] | None = None,
) -> Server:
    """The proxy as anyone starts it; `wrapper` is what runs `app` instead of `python -m`.

    Without `stages` none of them decides anything, and nothing is kept on the disk: what is left is
    the way of a request through the proxy. `changes`: sections of the settings, in place of what
    they are by default.
    """
    port = free_port()
    own = {"state": {"path": str(folder / f"state-{port}.db")}} if stages else NO_STAGES
    config = {
        **PROXY_CONFIG,
        **own,
        **(changes or {}),
        "server": {**PROXY_CONFIG["server"], "port": port},
        "upstream": {**PROXY_CONFIG["upstream"], "base_url": f"http://127.0.0.1:{upstream}"},
    }
    file = folder / f"proxy-{port}.yaml"
    file.write_text(yaml.safe_dump(config))
    argv = [
        sys.executable,
        "-m",
        *(wrapper or []),
        "mlx_stack_proxy",
        "serve",
        "--config",
        str(file),
    ]
    server = start("this proxy" if stages else "its frame", port, argv, folder)
    server.wait_ready("/health", 60)
    return server


def start_litellm(
    upstream: int, folder: Path, key: str, *, inside: dict[str, Any] | None = None
) -> Server | None:
    """LiteLLM alone, set up as README says; None where it isn't installed.

    ``inside``: with the reliability layer in its process, all stages on, counts on the disk, and
    with these settings where they are not the usual ones.
    """
    program = shutil.which("litellm", path=str(Path(sys.executable).parent))
    if not program or importlib.util.find_spec("litellm") is None:
        return None
    port = free_port()
    address = f"http://127.0.0.1:{upstream}/v1"
    model = {"model": "openai/fast", "api_base": address, "api_key": secrets.token_hex(16)}
    model["use_chat_completions_api"] = True  # for Responses
    config: dict[str, Any] = {
        "model_list": [{"model_name": "fast", "litellm_params": model}],
        "router_settings": {"disable_cooldowns": True, "num_retries": 0},
        "litellm_settings": {
            "telemetry": False,
            "use_chat_completions_url_for_anthropic_messages": True,
        },
    }
    settings = {"LITELLM_MASTER_KEY": key, "LITELLM_LOCAL_MODEL_COST_MAP": "True"}
    if inside is not None:
        config["litellm_settings"]["callbacks"] = [CALLBACK]
        settings["MLX_STACK_CONFIG"] = str(folder / f"inside-{port}.yaml")
        state = {"path": str(folder / f"state-{port}.db")}
        ours = {"tiers": PROXY_CONFIG["tiers"], "state": state, **inside}
        Path(settings["MLX_STACK_CONFIG"]).write_text(yaml.safe_dump(ours))
    file = folder / f"litellm-{port}.yaml"
    file.write_text(yaml.safe_dump(config))
    argv = [program, "--config", str(file), "--host", "127.0.0.1", "--port", str(port)]
    name = "LiteLLM alone" if inside is None else "LiteLLM inside"
    server = start(name, port, argv, folder, LITELLM_LOG="ERROR", **settings)
    server.wait_ready("/health/liveliness", 180)
    return server
