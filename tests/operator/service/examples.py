"""A service as one could have it."""

from __future__ import annotations

from pathlib import Path

from mlx_stack_proxy.settings import Settings
from mlx_stack_proxy.settings_source import from_mapping

# Names that XML, a unit file or a shell would each read as something else.
ODD = 'R&D <1> 100% $HOME "x" it\'s'


PROGRAM = Path("/opt/mlx-stack-proxy/bin/mlx-stack-proxy")
CONFIG = Path("/etc/mlx-stack-proxy/config.yaml")


COMMAND = (str(PROGRAM), "serve", "--config", str(CONFIG))


def settings(grace: float = 30, **kept_in: Path) -> Settings:
    """``kept_in``: the paths of the state (``state``) and of captured failures (``failures``)."""
    paths = {name: str(path) for name, path in kept_in.items()}
    return from_mapping(
        {
            "server": {"shutdown_grace_seconds": grace},
            "state": {"path": paths.get("state", "~/.mlx-stack/reliability.db")},
            "observability": {"capture_path": paths.get("failures", "~/.mlx-stack/failures")},
        }
    )


def program_at(path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("#!/bin/sh\n")
    path.chmod(0o755)
    return path
