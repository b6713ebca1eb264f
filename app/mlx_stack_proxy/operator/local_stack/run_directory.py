"""The folder of a running ``up``: generated configurations, logs, LiteLLM's key, and a lock.

Other commands (``check``, ``init``, ``demo``) take the configuration and the key of a running
``up`` from its folder. They find the folder by a port: the process that listens there, a child of
``up``, has the folder as its working folder, and no child outlives ``up``.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import MutableMapping
from pathlib import Path
from urllib.parse import urlsplit

from ...settings import is_loopback
from .. import CommandError, replace_file
from ..service import env_file
from . import ports

KEY_VARIABLE = "LITELLM_MASTER_KEY"
PROXY_CONFIG = "config.yaml"
KEY_FILE = "key.env"
USUAL = "~/.mlx-stack/run"


class RunDirectory:
    """The run directory of this process, locked until it ends; the system drops the lock then.

    Raises :class:`CommandError` if the folder can't be used or another ``up`` holds it.
    """

    def __init__(self, folder: str | Path) -> None:
        self.path = path = Path(folder).expanduser().resolve()
        self.logs = path / "logs"
        self.proxy_config = path / PROXY_CONFIG
        self.litellm_config = path / "litellm.yaml"
        self.key = path / KEY_FILE
        self.state = path / "reliability.db"
        self.model_cache = path / "huggingface"
        try:
            # 0700: logs and configurations are for this user only.
            path.mkdir(mode=0o700, parents=True, exist_ok=True)
            if path.stat().st_uid != os.getuid():
                raise CommandError(f"the run directory {path} belongs to someone else")
            self.logs.mkdir(mode=0o700, exist_ok=True)
            self._lock = os.open(path / "up.lock", os.O_RDWR | os.O_CREAT, 0o600)
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.read(self._lock, 32).decode().strip() or "unknown"
            os.close(self._lock)
            raise CommandError(
                f"{path} is in use by another `mlx-stack-proxy up` (process {holder}); end that, "
                "or use another --run-dir"
            ) from None
        except OSError as error:
            why = f"the run directory {path} can't be written to ({error.strerror})"
            raise CommandError(f"{why}; give another with --run-dir") from error
        os.truncate(self._lock, 0)
        os.write(self._lock, f"{os.getpid()}\n".encode())

    def log_file(self, name: str) -> Path:
        """Return the path of a child's new log; the log of the last run becomes ``.log.old``."""
        file = self.logs / f"{name}.log"
        if file.exists():
            file.replace(file.with_suffix(".log.old"))
        return file

    def keep_key(self, key: str) -> None:
        """Write LiteLLM's key for this user's commands; :meth:`close` removes the file."""
        replace_file(self.key, f"{KEY_VARIABLE}={key}\n", 0o600)

    def close(self) -> None:
        self.key.unlink(missing_ok=True)
        os.close(self._lock)


def shown(path: Path) -> str:
    """Return a path as people write it, with ``~`` for the home folder."""
    try:
        return f"~/{path.relative_to(Path.home())}"
    except (ValueError, RuntimeError):
        return str(path)


def running_at(url: str) -> Path | None:
    """Return the run directory of the ``up`` whose LiteLLM or proxy has this URL, or None."""
    parts = urlsplit(url)
    folder = ports.working_folder(parts.port or 80) if is_loopback(parts.hostname or "") else None
    return folder if folder is not None and (folder / KEY_FILE).exists() else None


def take_key(environ: MutableMapping[str, str], base_url: str) -> Path | None:
    """Set ``LITELLM_MASTER_KEY`` in ``environ``, if it is unset and ``up`` started this LiteLLM.

    Return the file that the key came from, or None. Raises :class:`SettingsError`.
    """
    folder = None if environ.get(KEY_VARIABLE) else running_at(base_url)
    if folder is None:
        return None
    env_file.put_into(environ, folder / KEY_FILE)
    return folder / KEY_FILE
