"""The child processes of ``up``: each one's command, environment, and where to ask whether it runs.

LiteLLM and the proxy get only the variables listed here. A DATABASE_URL or REDIS_HOST that is meant
for something else would change what LiteLLM does, and an HTTP_PROXY would catch requests to
loopback. Model servers get the whole environment, which a download may need.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path

from msgspec import Struct

from .configs import KEY_VARIABLE, SERVED_MODEL, SHUTDOWN_GRACE_SECONDS
from .run_directory import RunDirectory
from .tiers import LocalTier

START_SECONDS = 600.0  # limit for a child to become ready
_BASIC = ("PATH", "HOME", "USER", "LOGNAME", "SHELL", "TMPDIR", "TZ", "LANG", "VIRTUAL_ENV")
_BASIC_PREFIXES = ("LC_", "DYLD_", "LD_")
# The proxy's settings that a user may set for a run. `up` itself decides the proxy's address, its
# upstream and its tiers.
_PROXY_PREFIXES = tuple(
    f"MLX_STACK_{section}__" for section in ("RELIABILITY", "STREAM", "STATE", "OBSERVABILITY")
)
# The package may run from a checkout that isn't installed.
_PACKAGE = {"PYTHONPATH": str(Path(__file__).resolve().parents[3])}
_LITELLM = {
    "LITELLM_LOCAL_MODEL_COST_MAP": "True",  # else it downloads its price list
    "LITELLM_MODE": "PRODUCTION",  # else it reads the .env file of its working folder
    "DISABLE_ADMIN_UI": "True",
    "NO_DOCS": "True",
    "NO_REDOC": "True",
}
# LiteLLM is started as its own command starts it. Most of the start is imports, which take a fifth
# less with the garbage collector off. But started that way (with gc.freeze()), LiteLLM let calls of
# disconnected clients run on for up to 40 s; as started here it ends them within a second.
_RUN_LITELLM = "from litellm.proxy.proxy_cli import run_server; run_server()"


class ChildSpec(Struct, frozen=True):
    """How to start one child, and how to tell that it is ready."""

    name: str
    what: str  # the child in words, for the screen
    command: tuple[str, ...]
    environment: Mapping[str, str]
    directory: Path  # its working folder
    log_file: Path
    url: str  # answers a GET with 200 when the child is ready
    model: str = ""  # of a model server, which is ready once this model has written
    start_limit: float | None = START_SECONDS  # None: it may take as long as it runs
    end_grace: float = 5  # seconds between SIGTERM and SIGKILL


def model_server(tier: LocalTier, run: RunDirectory) -> ChildSpec:
    """Return the ``mlx_lm.server`` of a tier."""
    environment = dict(os.environ)  # whatever a download needs: a token, a proxy, certificates
    if tier.is_path:
        environment |= {"HF_HOME": str(run.model_cache), "HF_HUB_OFFLINE": "1"}
    options = ("--model", tier.model, "--host", "127.0.0.1", "--port", str(tier.port))
    return ChildSpec(
        tier.name,
        f"mlx_lm.server on :{tier.port} with {Path(tier.model).name}",
        _python("-m", "mlx_lm", "server", *options),
        environment | {"TOKENIZERS_PARALLELISM": "false"},
        run.path,
        run.log_file(tier.name),
        f"{tier.base_url}/health",
        model=SERVED_MODEL,
        start_limit=START_SECONDS if tier.is_path else None,  # it may download the model first
    )


def litellm(port: int, key: str, run: RunDirectory, inside: bool = False) -> ChildSpec:
    """Return LiteLLM's proxy. ``inside``: it imports this package, as the reliability layer."""
    environment = _environment(_PROXY_PREFIXES if inside else ()) | {KEY_VARIABLE: key} | _LITELLM
    listen = ("--host", "127.0.0.1", "--port", str(port))
    options = ("--config", str(run.litellm_config), *listen, "--telemetry", "False")
    return ChildSpec(
        "litellm",
        f"LiteLLM on :{port}",
        _python("-c", _RUN_LITELLM, *options),
        environment | (_PACKAGE if inside else {}),
        run.path,
        run.log_file("litellm"),
        f"http://127.0.0.1:{port}/health/liveliness",
        end_grace=SHUTDOWN_GRACE_SECONDS,
    )


def proxy(port: int, key: str, run: RunDirectory) -> ChildSpec:
    return ChildSpec(
        "proxy",
        f"the reliability proxy on :{port}",
        _python("-m", "mlx_stack_proxy", "serve", "--config", str(run.proxy_config)),
        _environment(_PROXY_PREFIXES) | {KEY_VARIABLE: key} | _PACKAGE,
        run.path,
        run.log_file("proxy"),
        f"http://127.0.0.1:{port}/ready",
        end_grace=SHUTDOWN_GRACE_SECONDS + 3,
    )


def _python(*arguments: str) -> tuple[str, ...]:
    # -P: no file in the run directory is imported as a module. -u: log lines are not buffered.
    return (sys.executable, "-P", "-u", *arguments)


def _environment(prefixes: tuple[str, ...]) -> dict[str, str]:
    """Return our environment's basic variables, and those that begin with one of ``prefixes``."""
    kept = (*_BASIC_PREFIXES, *prefixes)
    return {k: v for k, v in os.environ.items() if k in _BASIC or k.startswith(kept)}
