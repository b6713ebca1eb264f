"""What commands beside a running `mlx-stack-proxy up` take from it: its configuration and its key.

`up` writes LiteLLM's key, made anew at each start, into its run directory, for this user alone.
"""

from __future__ import annotations

from collections.abc import MutableMapping
from pathlib import Path

import yaml

from ..service import env_file
from .configs import KEY_VARIABLE
from .run_directory import KEY_FILE, PROXY_CONFIG, is_running, usual_folder


def running_config() -> Path | None:
    """The proxy's configuration of an `up` that runs; None where none does."""
    try:
        folder = usual_folder()
    except RuntimeError:
        return None
    return folder / PROXY_CONFIG if is_running(folder) else None


def take_key(
    environ: MutableMapping[str, str], base_url: str, given: Path | None = None
) -> Path | None:
    """Put in the key of the LiteLLM at this address, if `up` started it and none is there.

    ``given``: the configuration in use, which may be that of an `up` with a `--run-dir` of its own.
    The file the key came from; None where nothing was taken.
    """
    config = given if litellm_beside(given) else running_config()
    if config is None or environ.get(KEY_VARIABLE) or litellm_beside(config) != base_url:
        return None
    file = config.with_name(KEY_FILE)
    env_file.put_into(environ, file)
    return file


def litellm_beside(config: Path | None) -> str | None:
    """Where the LiteLLM of an `up` is whose configuration this is; None: of none that runs.

    Upstream; with `--inside`, where clients ask, too, and the configuration doesn't say it.
    """
    if config is None or config.name != PROXY_CONFIG or not is_running(config.parent):
        return None
    given = yaml.safe_load(config.read_text(encoding="utf-8"))
    if "upstream" in given:
        return str(given["upstream"]["base_url"])
    return f"http://127.0.0.1:{given['server']['port']}"
