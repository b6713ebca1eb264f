"""What `up` runs: for each child its command, its environment, and how to know that it is ready."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path

from ...frozen import frozen
from .configs import KEY_VARIABLE, SHUTDOWN_GRACE_SECONDS
from .probes import HttpProbe, ModelServerProbe
from .run_directory import RunDirectory
from .tiers import LocalTier

# LiteLLM and the proxy start from these alone: a DATABASE_URL or REDIS_HOST that is meant for
# something else would change what LiteLLM does, an HTTP_PROXY would catch requests to loopback.
_BASIC = ("PATH", "HOME", "USER", "LOGNAME", "SHELL", "TMPDIR", "TZ", "LANG", "VIRTUAL_ENV")
_BASIC_PREFIXES = ("LC_", "DYLD_", "LD_")
# Settings of the proxy that someone may set for a run. Its address, its upstream and its tiers are
# `up`'s own to say.
_PROXY_PREFIXES = (
    *("MLX_STACK_RELIABILITY__", "MLX_STACK_STREAM__"),
    *("MLX_STACK_STATE__", "MLX_STACK_OBSERVABILITY__"),
)
# The package may run from a checkout that isn't installed.
_PACKAGE = {"PYTHONPATH": str(Path(__file__).resolve().parents[3])}
# LiteLLM's start is nearly all imports; with the garbage collector off it takes a fifth less.
# But started that way (with gc.freeze()) it left calls of clients that had gone running for up to
# 40 s, where it ends them within a second otherwise. So it is started as its own command does it.
_RUN_LITELLM = "from litellm.proxy.proxy_cli import run_server; run_server()"


@frozen
class ChildSpec:
    """One child, ready to be started."""

    name: str
    what: str
    command: tuple[str, ...]
    environment: Mapping[str, str]
    directory: Path
    log_file: Path
    probe: HttpProbe
    start_limit: float | None
    """Seconds until it must be ready; ``None`` waits as long as it runs."""
    end_grace: float


def model_server(tier: LocalTier, run: RunDirectory, start_limit: float) -> ChildSpec:
    """The `mlx_lm.server` of a tier."""
    environment = dict(os.environ)  # whatever a download needs: a token, a proxy, certificates
    if tier.is_path:
        environment |= {"HF_HOME": str(run.model_cache), "HF_HUB_OFFLINE": "1"}
    options = {"--model": tier.model, "--host": "127.0.0.1", "--port": str(tier.port)}
    return ChildSpec(
        name=tier.name,
        what=f"mlx_lm.server on :{tier.port} with {Path(tier.model).name}",
        command=_python("-m", "mlx_lm", "server", *_flat(options)),
        environment=environment | {"TOKENIZERS_PARALLELISM": "false"},
        directory=run.path,
        log_file=run.log_file(tier.name),
        probe=ModelServerProbe(tier.port),
        # A download takes as long as it takes.
        start_limit=start_limit if tier.is_path else None,
        end_grace=5,
    )


def litellm(
    port: int, key: str, run: RunDirectory, start_limit: float, inside: bool = False
) -> ChildSpec:
    """LiteLLM's proxy in front of the model servers; ``inside``: it imports this package."""
    environment = _environment(_PROXY_PREFIXES if inside else ()) | {
        KEY_VARIABLE: key,
        # Its price list is looked for online otherwise.
        "LITELLM_LOCAL_MODEL_COST_MAP": "True",
        # Read no .env file of whatever folder it finds itself in.
        "LITELLM_MODE": "PRODUCTION",
        "DISABLE_ADMIN_UI": "True",
        "NO_DOCS": "True",
        "NO_REDOC": "True",
    }
    if inside:
        environment |= _PACKAGE
    options = {
        "--config": str(run.litellm_config),
        "--host": "127.0.0.1",
        "--port": str(port),
        "--telemetry": "False",
    }
    return ChildSpec(
        name="litellm",
        what=f"LiteLLM on :{port}",
        command=_python("-c", _RUN_LITELLM, *_flat(options)),
        environment=environment,
        directory=run.path,
        log_file=run.log_file("litellm"),
        probe=HttpProbe(port, "/health/liveliness"),
        start_limit=start_limit,
        end_grace=SHUTDOWN_GRACE_SECONDS,
    )


def proxy(port: int, key: str, run: RunDirectory, start_limit: float) -> ChildSpec:
    """The reliability proxy itself."""
    environment = _environment(_PROXY_PREFIXES) | {
        KEY_VARIABLE: key,
        **_PACKAGE,
    }
    return ChildSpec(
        name="proxy",
        what=f"the reliability proxy on :{port}",
        command=_python("-m", "mlx_stack_proxy", "serve", "--config", str(run.proxy_config)),
        environment=environment,
        directory=run.path,
        log_file=run.log_file("proxy"),
        probe=HttpProbe(port, "/ready"),
        start_limit=start_limit,
        end_grace=SHUTDOWN_GRACE_SECONDS + 3,
    )


def _python(*arguments: str) -> tuple[str, ...]:
    # -P: a file in the run directory never stands in for a module. -u: log lines come at once.
    return (sys.executable, "-P", "-u", *arguments)


def _flat(options: Mapping[str, str]) -> tuple[str, ...]:
    return tuple(part for option in options.items() for part in option)


def _environment(more: tuple[str, ...]) -> dict[str, str]:
    prefixes = (*_BASIC_PREFIXES, *more)
    return {k: v for k, v in os.environ.items() if k in _BASIC or k.startswith(prefixes)}
