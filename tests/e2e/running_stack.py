"""The real stack as a user starts it: `up` in a process of its own."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import httpx
import psutil

from mlx_stack_proxy.operator.local_stack.guarded_process import Lifeline, guarded
from tests.support.ports import free_port

REPOSITORY = Path(__file__).parents[2]
# On two busy cores it takes half a minute.
START_SECONDS = 300.0
READY_LINE = "Ctrl-C stops all of it."


def wait_until(condition: Callable[[], object], seconds: float, what: str) -> float:
    """Seconds until it was so."""
    begun = time.monotonic()
    while not condition():
        assert time.monotonic() - begun < seconds, f"{what}: not within {seconds:.0f} s"
        time.sleep(0.02)
    return time.monotonic() - begun


class RunningStack:
    """One `up`: what it has said, its children, and what it measures."""

    def __init__(self, run_dir: Path) -> None:
        self.run_dir = run_dir
        self.port = free_port(4)
        self.litellm_port = self.port + 1
        self.model_ports = {"fast": self.port + 2, "standard": self.port + 3}
        self.options = [
            *("--port", str(self.port), "--litellm-port", str(self.litellm_port)),
            *("--model-port", str(self.port + 2), "--run-dir", str(run_dir)),
            # Other models than the shipped ones: MLX_STACK_E2E_UP="--tier standard=…" make e2e
            *os.environ.get("MLX_STACK_E2E_UP", "").split(),
        ]
        self.said = ""
        self._seen = 0  # characters of that in which LiteLLM's crashes were looked for
        # However the test run ends: this pipe ends with it, and `up` then, too.
        self._lifeline = Lifeline()
        self.process = subprocess.Popen(
            guarded([sys.executable, "-m", "mlx_stack_proxy", "up", *self.options]),
            stdin=self._lifeline.read_end,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            cwd=REPOSITORY,
            start_new_session=True,
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def wait_ready(self) -> None:
        def settled() -> bool:
            return READY_LINE in self.said or self.process.poll() is not None

        wait_until(settled, START_SECONDS, "the stack's start")
        assert READY_LINE in self.said, f"the stack did not start:\n{self.said}"

    def wait_said(self, pattern: str, seconds: float) -> None:
        wait_until(lambda: re.search(pattern, self.said, re.M), seconds, f"{pattern} said")

    def litellm_crashed(self) -> bool:
        """Whether LiteLLM's process has crashed since the last call; wait until it is back."""
        said, self._seen = self.said[self._seen :], len(self.said)
        if not re.search("^.*litellm.*SIGSEGV", said, re.M | re.I):
            return False
        url = f"http://127.0.0.1:{self.litellm_port}/health/liveliness"

        def answers() -> bool:
            with contextlib.suppress(httpx.HTTPError):
                return httpx.get(url, timeout=2).status_code == 200
            return False

        wait_until(answers, START_SECONDS, "LiteLLM's return")
        return True

    def children(self) -> dict[str, psutil.Process]:
        """The four children by name."""
        names = {str(port): name for name, port in self.model_ports.items()}
        found = {}
        for child in psutil.Process(self.process.pid).children():
            command = child.cmdline()
            if "litellm" in " ".join(command):
                found["litellm"] = child
            elif "serve" in command:
                found["proxy"] = child
            elif "mlx_lm" in command:
                found[names[command[command.index("--port") + 1]]] = child
        return found

    def left(self) -> list[str]:
        """The command lines of whatever runs of this stack, its guards included."""
        marks = (str(self.run_dir), *(str(port) for port in self.model_ports.values()))
        found = []
        for process in psutil.process_iter():
            try:
                command = process.cmdline()
            except psutil.Error:
                continue
            ours = any(mark in part for part in command for mark in marks)
            if ours and process.status() != psutil.STATUS_ZOMBIE:
                found.append(" ".join(command))
        return found

    def metric(self, name: str, **labels: str) -> float:
        """A metric of the proxy; 0 where it isn't there yet."""
        wanted = {f'{key}="{value}"' for key, value in labels.items()}
        for line in httpx.get(f"{self.url}/metrics").text.splitlines():
            match = re.match(rf"{name}(?:\{{(.*)\}})? (\S+)$", line)
            if match and wanted <= set((match[1] or "").split(",")):
                return float(match[2])
        return 0.0

    def logs(self) -> str:
        """How each log ends."""
        parts = [f"--- up\n{self.said}"]
        for log in sorted((self.run_dir / "logs").glob("*.log")):
            parts.append(f"--- {log.name}\n{log.read_text(errors='replace')[-3000:]}")
        return "\n".join(parts)

    def stop(self, number: signal.Signals = signal.SIGINT) -> int:
        """Ask it to stop; its exit code."""
        if self.process.poll() is None:
            self.process.send_signal(number)
        try:
            self.process.wait(60)
        finally:
            with contextlib.suppress(OSError):
                os.killpg(self.process.pid, signal.SIGKILL)
            self._reader.join(10)
        return self.process.returncode

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.said += line
