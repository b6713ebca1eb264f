"""A service as one could have it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from mlx_stack_proxy.operator.service.managers import Spec

# Names that XML, a unit file or a shell would each read as something else.
ODD = 'R&D <1> 100% $HOME "x" it\'s'


PROGRAM = Path("/opt/mlx-stack-proxy/bin/mlx-stack-proxy")
CONFIG = Path("/etc/mlx-stack-proxy/config.yaml")


def spec(folder: Path, program: Path = PROGRAM, config: Path = CONFIG, **changes: Any) -> Spec:
    given: dict[str, Any] = {
        "command": (str(program), "serve", "--config", str(config)),
        "folder": folder,
        "kept_in": (folder, folder / "failures"),
        "env_file": folder / "service.env",
        "stop_seconds": 45,
        "health_url": "http://127.0.0.1:9/health",
    }
    return Spec(**{**given, **changes})


def program_at(path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("#!/bin/sh\n")
    path.chmod(0o755)
    return path
