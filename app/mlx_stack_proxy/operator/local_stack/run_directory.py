"""The folder of one running stack: generated configurations, logs, and a lock."""

from __future__ import annotations

import fcntl
import os
import tempfile
from pathlib import Path


class RunDirectoryError(Exception):
    """The folder can't be used; the message is one line for the user."""


class RunDirectory:
    """The folder, held by a lock until we end. The system drops the lock when we are killed."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.logs = path / "logs"
        self.proxy_config = path / "config.yaml"
        self.litellm_config = path / "litellm.yaml"
        self.state = path / "reliability.db"
        self.model_cache = path / "huggingface"
        _make(path, self.logs)
        self._lock = os.open(path / "up.lock", os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            holder = os.pread(self._lock, 32, 0).decode(errors="replace").strip()
            os.close(self._lock)
            raise RunDirectoryError(
                f"{path} is in use by another `mlx-stack-proxy up` (process "
                f"{holder or 'unknown'}); end that, or give this one a --run-dir of its own"
            ) from None
        os.ftruncate(self._lock, 0)
        os.pwrite(self._lock, f"{os.getpid()}\n".encode(), 0)

    def log_file(self, name: str) -> Path:
        """The log of a child, empty: what it said last time is kept beside it as ``.old``."""
        file = self.logs / f"{name}.log"
        if file.exists():
            file.replace(file.with_suffix(".log.old"))
        return file

    def close(self) -> None:
        os.close(self._lock)


def open_run_directory(given: str | None) -> RunDirectory:
    """The folder given; else ``~/.mlx-stack/run``, or one under the temporary folder where the home
    can't be written to. Raises :class:`RunDirectoryError`."""
    if given is not None:
        return RunDirectory(Path(given).expanduser().resolve())
    try:
        return RunDirectory(usual_folder())
    except RuntimeError:  # there is no home
        pass
    except RunDirectoryError as error:
        if not isinstance(error.__cause__, OSError):
            raise
    return RunDirectory(Path(tempfile.gettempdir()) / f"mlx-stack-{os.getuid()}")


def usual_folder() -> Path:
    """Where a run directory is by default. Raises ``RuntimeError`` where there is no home."""
    return Path.home() / ".mlx-stack" / "run"


def _make(path: Path, logs: Path) -> None:
    try:
        # Logs and configurations are nobody else's business.
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        if path.stat().st_uid != os.getuid():
            raise RunDirectoryError(f"the run directory {path} belongs to someone else")
        logs.mkdir(mode=0o700, exist_ok=True)
        (path / "up.lock").touch(mode=0o600)
    except OSError as error:
        raise RunDirectoryError(
            f"the run directory {path} can't be written to ({error.strerror}); "
            "give another with --run-dir"
        ) from error
