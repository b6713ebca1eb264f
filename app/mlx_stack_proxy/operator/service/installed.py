"""The service that is installed: what it would read if it were started now."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from ...frozen import frozen
from ...server.workers import check_state
from ...settings import Settings
from ...settings_source import load


@frozen
class Installed:
    """``command``: what the manager runs, in words. ``environ``: of the environment file."""

    command: Sequence[str]
    folder: Path
    environ: Mapping[str, str]

    def settings(self) -> Settings:
        """Raises :class:`SettingsError`: it would not start."""
        words = iter(self.command)
        config = next(words, None) if "--config" in words else None  # `in` stops behind it
        return usable(config, self.environ, self.folder)


def usable(
    path: str | None, environ: Mapping[str, str] | None = None, folder: Path | None = None
) -> Settings:
    """Settings with which ``serve`` would start; arguments as of :func:`load`.

    Raises :class:`SettingsError`.
    """
    settings = load(path, environ, folder or Path())
    check_state(settings)
    return settings
