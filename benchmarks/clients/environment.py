"""What an agent is installed into and run in: a folder of its own under ``build/clients``."""

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
from typing import NamedTuple

import psutil

from benchmarks.records import ROOT

ENVIRONMENTS = ROOT / "build" / "clients"
NODE = 22  # what Claude Code, Cline and Qwen Code ask for
_KEPT = ("PATH", "LANG", "TERM", "TZ", "SSL_CERT_FILE", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY")
_KEPT_PREFIXES = ("LC_", "npm_config_")


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


class Ended(NamedTuple):
    code: int  # -9 where it ran past its time
    said: str


@dataclass(frozen=True)
class Environment:
    """An npm prefix in a folder."""

    folder: Path

    @property
    def variables(self) -> dict[str, str]:
        path = f"{self.folder / 'bin'}{os.pathsep}{os.environ['PATH']}"
        return {"PATH": path, "npm_config_prefix": str(self.folder)}

    def version(self, package: str) -> str:
        """Of a package that is installed here."""
        manifest = self.folder / "lib" / "node_modules" / package / "package.json"
        return str(json.loads(manifest.read_text(encoding="utf-8"))["version"])

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
            *("bash", "-e", "-c", script),
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
            _end_daemons_of(home)
        said, _ = await saying
        text = said.decode(errors="replace")
        if not ended:
            return Ended(-9, f"{text}\nnot within {seconds:.0f} s")
        return Ended(process.returncode or 0, text)


def _end_daemons_of(home: Path) -> None:
    """End what has left the script's process group, such as Cline's daemons."""
    killed = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            if process.environ().get("HOME") == str(home):
                process.kill()
                killed.append(process)
    psutil.wait_procs(killed, 10)


def installed(package: str, fresh: bool = False) -> Environment:
    """An agent's own environment; raises `CalledProcessError` where npm can't be reached."""
    environment = Environment(ENVIRONMENTS / package.rpartition("/")[2])
    done = environment.folder / ".installed"
    if fresh or not done.exists():
        say(f"{package}: installing")
        shutil.rmtree(environment.folder, ignore_errors=True)
        environment.folder.mkdir(parents=True)
        command = ["npm", "install", "-g", "--no-audit", "--no-fund", "--loglevel=error", package]
        subprocess.run(command, env={**os.environ, **environment.variables}, check=True)
        done.touch()
    return environment


def find_node(fresh: bool) -> None:
    """Put a Node that is new enough on the path: npm takes older agents for an older one."""
    found = subprocess.run(["node", "--version"], capture_output=True, text=True, check=True)
    if int(found.stdout.lstrip("v").partition(".")[0]) < NODE:
        folder = installed(f"node@{NODE}", fresh).folder / "bin"
        os.environ["PATH"] = f"{folder}{os.pathsep}{os.environ['PATH']}"
