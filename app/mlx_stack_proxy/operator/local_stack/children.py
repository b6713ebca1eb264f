"""The child processes of ``up``: each one's command, environment, configuration, and how to ask it.

LiteLLM and the proxy get only the variables listed here. A DATABASE_URL or REDIS_HOST that is meant
for something else would change what LiteLLM does, and an HTTP_PROXY would catch requests to
loopback. Model servers get the whole environment, which a download may need.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml
from msgspec import Struct

from .. import deploy_path
from .run_directory import KEY_VARIABLE, RunDirectory
from .tiers import LocalTier

CALLBACK = "mlx_stack_proxy.litellm.reliability"  # for `litellm_settings.callbacks`
# mlx_lm.server's name for the model it was started with. Asked for a name that it doesn't know, it
# would unload that model.
SERVED_MODEL = "default_model"
# Short, because a user who presses Ctrl-C wants an end; enough for a reply that is nearly done.
SHUTDOWN_GRACE_SECONDS = 5
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


def litellm_config(tiers: Sequence[LocalTier], inside: bool = False) -> dict[str, Any]:
    """Return LiteLLM's configuration: ``deploy/litellm/config.yaml`` with these tiers.

    ``inside``: with the reliability layer as a callback.
    """
    shipped = deploy_path("litellm/config.yaml").read_text(encoding="utf-8")
    config: dict[str, Any] = yaml.safe_load(shipped)
    entry = config["model_list"][0]
    config["model_list"] = []
    for tier in tiers:
        served = {"model": f"openai/{SERVED_MODEL}", "api_base": f"{tier.base_url}/v1"}
        params = {**entry["litellm_params"], **served}
        config["model_list"].append({**entry, "model_name": tier.name, "litellm_params": params})
    if inside:
        config["litellm_settings"]["callbacks"] = [CALLBACK]
    return config


def proxy_config(
    tiers: Sequence[LocalTier], port: int, litellm_port: int | None, state: Path
) -> dict[str, Any]:
    """Return the configuration of a proxy on ``port`` with the started tiers.

    ``litellm_port``: where LiteLLM listens; None if the proxy runs inside it, on its port.
    """
    server: dict[str, Any] = {"port": port}
    sections: dict[str, Any] = {"server": server, "state": {"path": str(state)}, "tiers": {}}
    if litellm_port is not None:
        server |= {"host": "127.0.0.1", "api_keys": ["*"]}
        server["shutdown_grace_seconds"] = SHUTDOWN_GRACE_SECONDS
        url = f"http://127.0.0.1:{litellm_port}"
        sections["upstream"] = {"base_url": url, "api_key_env": KEY_VARIABLE}
    for tier in tiers:
        window = {"context_window": tier.context_window} if tier.context_window else {}
        health_url = f"{tier.base_url}/health"
        sections["tiers"][tier.name] = {"model": tier.name, "health_url": health_url, **window}
    names = list(sections["tiers"])
    reliability = {"escalation": {"chain": names}, "token_budget": {"downgrade_tier": names[0]}}
    return {**sections, "reliability": reliability}


def write_yaml(path: Path, data: dict[str, Any]) -> None:
    """Write a configuration below a comment that says who wrote it."""
    text = yaml.safe_dump(data, sort_keys=False, allow_unicode=True, width=100)
    head = "# Written by `mlx-stack-proxy up`, anew at each start: changes here are lost.\n"
    path.write_text(head + text, encoding="utf-8")
