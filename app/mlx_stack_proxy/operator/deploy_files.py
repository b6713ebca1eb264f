"""What comes along under ``deploy/``: in the wheel it lies in ``mlx_stack_proxy/deploy/``."""

from __future__ import annotations

from pathlib import Path

_PLACES = (Path(__file__).parents[1] / "deploy", Path(__file__).parents[3] / "deploy")


def deploy_path(name: str) -> Path:
    """A file or folder by its path below ``deploy/``; it may not be there."""
    for place in _PLACES:
        if (place / name).exists():
            return place / name
    return _PLACES[-1] / name
