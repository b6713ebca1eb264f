"""What is to run as a service: the program, its configuration, its folders."""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Mapping
from pathlib import Path

from ...frozen import frozen
from ...settings import ENV_PREFIX, Settings
from ...settings_source import CONFIG_VARIABLE, find_file
from .steps import ServiceError, Step, WriteFile

NAME = "mlx-stack-proxy"
LABEL = "com.mlx-stack.proxy"
# Beyond the time that exchanges in flight are given to end.
STOP_MARGIN_SECONDS = 15


@frozen
class Spec:
    """``config``: None where the defaults are to serve. ``folder``: where it runs.
    ``kept_in``: the folders of the state file and of captured failures. ``variables``: the names
    and values that the configuration needs from the environment; None where one isn't there now.
    ``health_url``: what answers once it serves.
    """

    program: Path
    config: Path | None
    folder: Path
    kept_in: tuple[Path, ...]
    env_file: Path
    stop_seconds: int
    variables: Mapping[str, str | None]
    health_url: str

    @property
    def command(self) -> tuple[str, ...]:
        """What the service runs, without what only one kind of manager adds."""
        config = ("--config", str(self.config)) if self.config is not None else ()
        return (str(self.program), "serve", *config)


def find_program() -> Path:
    """The command beside this interpreter: the one of this installation, also after an upgrade.

    Raises :class:`ServiceError` in a source tree that was never installed.
    """
    program = Path(sys.executable).parent / NAME
    if not program.exists():
        raise ServiceError(f"{program} is missing: install the package first (docs/install.md)")
    return program


def find_config(given: str | None, environ: Mapping[str, str]) -> Path | None:
    """The file that ``serve`` would take here, as an absolute path. Raises :class:`SettingsError`
    where the working folder can't be searched."""
    found = find_file(given, environ)
    return found.resolve() if found is not None else None


def needed_variables(settings: Settings, environ: Mapping[str, str]) -> dict[str, str | None]:
    """The environment that the configuration names, and all ``MLX_STACK_*`` that are set now."""
    names = [settings.upstream.api_key_env]
    cloud = settings.reliability.escalation.cloud_fallback
    names += [cloud.api_key_env] if cloud is not None else []
    ours = [name for name in sorted(environ) if name.startswith(ENV_PREFIX)]
    names += [name for name in ours if name != CONFIG_VARIABLE]
    return {name: environ.get(name) for name in names if name}


def environment_step(spec: Spec) -> Step:
    """Write the environment file, readable by its owner alone; one that is there is left alone."""

    def lines(hide: bool) -> str:
        found = ["# The environment of mlx-stack-proxy. Keys belong here, not into config.yaml."]
        for name, value in spec.variables.items():
            said = "(as it is now, not shown)" if hide else quoted_value(name, value or "")
            found.append(f"#{name}=" if value is None else f"{name}={said}")
        return "\n".join(found) + "\n"

    return WriteFile(spec.env_file, lines(False), 0o600, keep=True, shown=lines(True))


def remarks(spec: Spec) -> list[str]:
    """What to look at in an environment file that is there already."""
    if not spec.env_file.exists():
        return []
    said = []
    mode = stat.S_IMODE(spec.env_file.stat().st_mode)
    if mode & 0o077:
        said.append(f"{spec.env_file} has mode {mode:04o}: make it 0600 with chmod 600")
    if os.access(spec.env_file, os.R_OK):
        text = spec.env_file.read_text(encoding="utf-8", errors="replace")
        there = {line.partition("=")[0].strip() for line in text.splitlines()}
        lacking = [n for n, v in spec.variables.items() if v is not None and n not in there]
        said += [f"{spec.env_file} is left as it is, and lacks {name}" for name in lacking]
    return said


def quoted_value(name: str, value: str) -> str:
    """A value for an environment file, as systemd and ``env_file.py`` read it."""
    if "\n" in value or "\r" in value or "\0" in value:
        raise ServiceError(f"the value of {name} has a line end, which a file can't hold")
    escaped = value.replace("\\", "\\\\").replace('"', '\\"').replace("$", "\\$")
    return '"' + escaped.replace("`", "\\`") + '"'
