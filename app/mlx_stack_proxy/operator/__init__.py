"""The commands of ``mlx-stack-proxy``; ``cli.py`` has their table. Here is what they share."""

from __future__ import annotations

from pathlib import Path

# Where the files of `deploy/` are: the wheel has them as `mlx_stack_proxy/deploy/`.
_DEPLOY = (Path(__file__).parents[1] / "deploy", Path(__file__).parents[3] / "deploy")


class CommandError(Exception):
    """A command can't be done: its exit code is 1. The message is one line for the user."""


def deploy_path(name: str) -> Path:
    """Return the path of a file or folder below ``deploy/``, even if it doesn't exist."""
    for place in _DEPLOY:
        if (place / name).exists():
            return place / name
    return _DEPLOY[-1] / name
