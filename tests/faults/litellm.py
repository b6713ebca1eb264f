"""A real LiteLLM, with the configuration that ships, in front of any model servers."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import httpx

from mlx_stack_proxy.operator.local_stack import children
from mlx_stack_proxy.operator.local_stack.guarded_process import Lifeline, guarded
from mlx_stack_proxy.operator.local_stack.run_directory import RunDirectory
from mlx_stack_proxy.operator.local_stack.tiers import LocalTier

START_SECONDS = 300.0  # 12 to 20 on a machine that has nothing else to do


class LiteLLM:
    """One child. `ports`: each tier's model server; `changes`: sections to replace in its file.

    `inside`: settings of a reliability layer in its process, along with other callbacks.
    """

    def __init__(
        self,
        run_dir: Path,
        port: int,
        ports: Mapping[str, int],
        changes: Mapping[str, Any] | None = None,
        inside: Mapping[str, Any] | None = None,
    ) -> None:
        self.run_dir = run_dir
        self.port = port
        self.ports = ports
        self.key = f"sk-{os.urandom(24).hex()}"
        directory = RunDirectory(run_dir)
        self._lifeline = Lifeline()  # it ends with us, however we end
        tiers = [LocalTier(name, name, at, False) for name, at in ports.items()]
        config = {**children.litellm_config(tiers), **(changes or {})}
        layer = [children.CALLBACK] if inside is not None else []
        litellm_settings = dict(config["litellm_settings"])
        config["litellm_settings"] = litellm_settings
        litellm_settings["callbacks"] = ["prometheus", *layer, "hooks.hooks"]
        shutil.copy(Path(__file__).with_name("hooks.py"), run_dir)
        if inside is not None:
            children.write_yaml(directory.proxy_config, dict(inside))
        children.write_yaml(directory.litellm_config, config)
        self._spec = children.litellm(port, self.key, directory)
        self.log = self._spec.log_file
        self.process = self._start()

    def _start(self) -> subprocess.Popen[bytes]:
        with self.log.open("ab") as log:
            return subprocess.Popen(
                guarded(self._spec.command),
                stdin=self._lifeline.read_end,
                stdout=log,
                stderr=log,
                cwd=self._spec.directory,
                env=dict(self._spec.environment),
                start_new_session=True,
            )

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def wait_ready(self) -> None:
        begun = time.monotonic()
        while time.monotonic() - begun < START_SECONDS:
            try:
                if httpx.get(f"{self.url}/health/liveliness", timeout=2).status_code == 200:
                    return
            except httpx.HTTPError:
                pass
            assert self.process.poll() is None, self.log.read_text()[-3000:]
            time.sleep(0.1)
        raise AssertionError(f"LiteLLM did not start: {self.log.read_text()[-3000:]}")

    def revive(self) -> bool:
        """Start it anew if its own process has crashed; return whether it had."""
        crashed = self.process.poll() == -signal.SIGSEGV
        if crashed:
            self.restart()
        return crashed

    def signal(self, number: int) -> None:
        self.process.send_signal(number)

    def restart(self) -> None:
        """Start it anew after it was killed."""
        self.stop()
        self.process = self._start()
        self.wait_ready()

    def stop(self) -> None:
        self.process.terminate()
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            pass
        finally:
            try:
                os.killpg(self.process.pid, 9)
            except ProcessLookupError:
                pass
            self.process.wait()
