"""What a framework is installed into and run in: a folder of its own under `build/frameworks`."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import psutil

from benchmarks.frameworks.page import REPOSITORY

ENVIRONMENTS = REPOSITORY / "build" / "frameworks"
_KEPT = ("PATH", "LANG", "TERM", "TZ", "SSL_CERT_FILE", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY")
_KEPT_PREFIXES = ("PIP_", "LC_", "npm_config_")


@dataclass(frozen=True)
class Ended:
    code: int  # -9 where it ran past its time
    said: str


@dataclass(frozen=True)
class Environment:
    """A virtual environment, where one is wanted, and an npm prefix in one folder."""

    folder: Path
    python: bool = True

    @property
    def is_installed(self) -> bool:
        return self._done.exists()

    @property
    def _done(self) -> Path:
        return self.folder / ".installed"

    def install(self, commands: str) -> None:
        """Run the page's own lines; raises `CalledProcessError`."""
        shutil.rmtree(self.folder, ignore_errors=True)
        self.folder.mkdir(parents=True)
        if self.python:
            subprocess.run([sys.executable, "-m", "venv", self.folder], check=True)
        keep = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
        script = f"set -e\n{commands}"
        subprocess.run(["bash", "-c", script], env={**keep, **self.variables}, check=True)
        self._done.touch()

    @property
    def variables(self) -> dict[str, str]:
        path = f"{self.folder / 'bin'}{os.pathsep}{os.environ['PATH']}"
        return {
            "PATH": path,
            "VIRTUAL_ENV": str(self.folder),
            "npm_config_prefix": str(self.folder),  # where `npm install -g` puts it
            "PIP_DISABLE_PIP_VERSION_CHECK": "1",
            "PIP_QUIET": "1",
        }

    def version(self, package: str) -> str:
        """Of a Python or npm package that is installed here; empty where it isn't."""
        manifest = self.folder / "lib" / "node_modules" / package / "package.json"
        if manifest.is_file():
            return str(json.loads(manifest.read_text(encoding="utf-8"))["version"])
        code = f"from importlib.metadata import version; print(version({package!r}))"
        found = subprocess.run(
            [self.folder / "bin" / "python", "-c", code], capture_output=True, text=True
        )
        return found.stdout.strip()

    async def run(
        self, script: str, home: Path, variables: Mapping[str, str], seconds: float
    ) -> Ended:
        """Run a script of bash in `home`, which is also its HOME; nothing of ours gets into it."""
        kept = {
            name: value
            for name, value in os.environ.items()
            if name in _KEPT or name.startswith(_KEPT_PREFIXES)
        }
        process = await asyncio.create_subprocess_exec(
            "bash",
            "-e",
            "-c",
            script,
            cwd=home,
            env={**kept, **self.variables, "HOME": str(home), **variables},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        saying = asyncio.create_task(process.communicate())
        try:
            ended, _ = await asyncio.wait({saying}, timeout=seconds)
        finally:  # whatever it has left behind, too, and also where we are interrupted
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            _end_all_of(home)
        said, _ = await saying
        text = said.decode(errors="replace")
        if not ended:
            return Ended(-9, f"{text}\nnot within {seconds:.0f} s")
        return Ended(process.returncode or 0, text)


def _end_all_of(home: Path) -> None:
    """End the daemons that have left the script's process group, such as Cline's."""
    killed = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            if process.environ().get("HOME") == str(home):
                process.kill()
                killed.append(process)
    psutil.wait_procs(killed, 10)
