"""Find the files of ``deploy/``, which the wheel has as ``mlx_stack_proxy/deploy/``."""

from __future__ import annotations

from pathlib import Path

_PLACES = (Path(__file__).parents[1] / "deploy", Path(__file__).parents[3] / "deploy")


def deploy_path(name: str) -> Path:
    """Return the path of a file or folder below ``deploy/``, even if it doesn't exist."""
    for place in _PLACES:
        if (place / name).exists():
            return place / name
    return _PLACES[-1] / name
