"""``mlx-stack-proxy up``: run model servers, LiteLLM and the proxy with one command.

:func:`run` checks what can be checked before anything starts: the packages, the tiers, the ports,
the run directory. :func:`_serve` then writes the configurations, has the ``Supervisor`` start
LiteLLM and the model servers and after them the proxy, and asks each tier once.
"""

from __future__ import annotations

import argparse
import asyncio
import importlib.util
import secrets
import shlex
import signal
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from ... import tasks
from ...engine.upstream import UpstreamError
from ...server import open_files
from ...settings import ServerSettings, TierSettings
from .. import CommandError
from ..agents.clients import CLIENTS
from ..prober import brief, one_token
from . import children, ports
from .run_directory import USUAL, RunDirectory, shown
from .supervisor import Console, Supervisor
from .tiers import DEMO_TIERS, LocalTier, chosen_tiers

DEFAULT_PORT = ServerSettings().port
_WARM_UP_SECONDS = 60.0
_OFFERED = ("claude-code", "codex")  # of the clients, where their first request fits
# The weak demo model answers it with a call as text.
_CURL_BODY = (
    '"messages":[{"role":"user","content":"Would you give me the details of customer '
    'cus_X2MPxfGy?"}],"tools":[{"type":"function","function":{"name":"get_customer",'
    '"parameters":{"type":"object","properties":{"customer_id":{"type":"string"}}}}}]'
)


def add_up(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Start the whole local stack: a model server for each tier, LiteLLM in front of them, and "
        "the reliability proxy. Ctrl-C stops all of it."
    )
    add = parser.add_argument
    text = (
        "serve this model (a folder, or a Hugging Face id such as mlx-community/Qwen3-4B-4bit) as "
        "this tier; `NAME=` omits a tier; may be repeated (default: the two demo models, as fast "
        "and standard)"
    )
    add("--tier", action="append", default=[], metavar="NAME=MODEL", help=text)
    for option, port, whose in (
        ("--port", DEFAULT_PORT, "the proxy's port"),
        ("--litellm-port", 4000, "LiteLLM's port"),
        ("--model-port", 8081, "the first model server's port; the others follow"),
    ):
        text = f"{whose} (default: %(default)s)"
        add(option, type=int, default=port, metavar="PORT", help=text)
    text = "run the reliability layer inside LiteLLM, which listens on --port"
    add("--inside", action="store_true", help=text)
    text = "the folder of logs and generated configurations (default: %(default)s)"
    add("--run-dir", metavar="FOLDER", default=USUAL, help=text)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Run the stack until a signal; return the exit code. Raises ``CommandError``."""
    for module, package in (("mlx_lm", "mlx-lm"), ("litellm", "litellm[proxy]")):
        if importlib.util.find_spec(module) is None:
            raise CommandError(
                f"{package} isn't installed here; in a checkout it comes with `make run`, "
                "or with pip install '.[local]'"
            )
    tiers = chosen_tiers(args.tier, args.model_port)
    needed = [(args.port, "LiteLLM" if args.inside else "the proxy", "--port")]
    needed += [] if args.inside else [(args.litellm_port, "LiteLLM", "--litellm-port")]
    needed += [(tier.port, f"the {tier.name} tier", "--model-port") for tier in tiers]
    ports.require_free(needed)
    directory = RunDirectory(args.run_dir)
    open_files.raise_limit()  # LiteLLM inherits the limit, and has two connections for each stream
    try:
        return asyncio.run(_until_a_signal(args, tiers, directory))
    finally:
        directory.close()


async def _until_a_signal(
    args: argparse.Namespace, tiers: Sequence[LocalTier], directory: RunDirectory
) -> int:
    console = Console(name_width=max(len(name) for name in [*(t.name for t in tiers), "litellm"]))
    serving = asyncio.ensure_future(_serve(args, tiers, directory, console))
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        # The first signal alone: a second one must not interrupt the end.
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(number, lambda: serving.cancelling() or serving.cancel())
    try:
        await serving
    except asyncio.CancelledError:
        pass
    finally:
        console.say("All stopped.")
    return 0


async def _serve(
    args: argparse.Namespace, tiers: Sequence[LocalTier], run: RunDirectory, console: Console
) -> None:
    """Start the stack, say what to do next, and keep the stack running."""
    begun, key = time.monotonic(), f"sk-{secrets.token_urlsafe(32)}"
    console.say(f"Starting the local stack; it runs in {shown(run.path)}")
    run.keep_key(key)
    litellm_port = args.port if args.inside else args.litellm_port
    upstream_port = None if args.inside else litellm_port
    children.write_yaml(run.litellm_config, children.litellm_config(tiers, args.inside))
    config = children.proxy_config(tiers, args.port, upstream_port, run.state)
    children.write_yaml(run.proxy_config, config)
    async with Supervisor(console) as supervisor:
        try:
            # LiteLLM first: it takes longest to start, and can start before the model servers.
            backends = [children.litellm(litellm_port, key, run, args.inside)]
            await supervisor.start([*backends, *(children.model_server(t, run) for t in tiers)])
            asked = (_warm_up(tier, litellm_port, key, console) for tier in tiers)
            warm_up = asyncio.gather(*asked)
            try:
                await supervisor.start([] if args.inside else [children.proxy(args.port, key, run)])
                await warm_up
            finally:
                await tasks.end(warm_up)
            seconds = time.monotonic() - begun
            console.say(_next_steps(tiers, args.port, seconds, key if args.inside else ""))
            await supervisor.failed()
        finally:
            console.say("Stopping …")


async def _warm_up(tier: LocalTier, litellm_port: int, key: str, console: Console) -> None:
    """Ask a tier through LiteLLM, whose first request takes seconds; warn if that fails."""
    litellm = f"http://127.0.0.1:{litellm_port}"
    try:
        status, body = await one_token(litellm, tier.name, key, _WARM_UP_SECONDS)
        trouble = "" if status == 200 else brief(status, body)
    except (UpstreamError, TimeoutError) as error:
        trouble = str(error) or "no answer in time"
    if trouble:
        console.child(tier.name, "warning", f"asking it through LiteLLM failed: {trouble}")


def _next_steps(tiers: Sequence[LocalTier], port: int, seconds: float, key: str) -> str:
    """Return what ``up`` says once all run. ``key``: LiteLLM's key, if clients have to send it."""
    url, first = f"http://127.0.0.1:{port}", tiers[0].name
    # With its folder: that of a virtual environment is seldom on the PATH.
    program = shlex.quote(str(Path(sys.executable).with_name("mlx-stack-proxy")))
    url_option = "" if port == DEFAULT_PORT else f" --url {url}"
    tier_option = "" if first == DEMO_TIERS[0] else f" --tier {first}"
    authorization = f"-H 'Authorization: Bearer {key}' " if key else ""
    demo = f"""
  {program} demo{url_option}{tier_option}

asks ten questions, without the proxy and through it. Or ask one yourself:
"""
    return f"""
Ready after {seconds:.0f} s. Tiers: {", ".join(tier.name for tier in tiers)}. In another terminal:
{"" if key else demo}
  curl -i {url}/v1/chat/completions -H 'Content-Type: application/json' \
{authorization}-d '{{"model":"{first}",{_CURL_BODY}}}'

The header x-mlx-stack-repairs says how the call was repaired. For any OpenAI client:

  export OPENAI_BASE_URL={url}/v1
  export OPENAI_API_KEY={key or "local"}

{_agents(tiers, f"{program} launch {{}}{url_option}")}
To see what it does, open {url}/mlx-stack/, or:

  {program} status --watch{url_option}
  {program} events --follow{url_option}

Ctrl-C stops all of it."""


def _agents(tiers: Sequence[LocalTier], command: str) -> str:
    """Say how to start the coding agents that work with these models: the demo models suit none."""
    window = tiers[0].context_window or TierSettings(model="").context_window
    fitting = [c.name for c in CLIENTS if c.name in _OFFERED and c.prompt_tokens < window]
    if fitting and not any(tier.is_demo for tier in tiers):
        lines = "\n".join(f"  {command.format(name)}" for name in fitting)
        return f"Or a coding agent:\n\n{lines}\n"
    more = "" if fitting else " with a larger window"
    return (
        f"A coding agent needs a real model{more}: stop this and run\n"
        "\n  make run ARGS='--tier fast=MODEL --tier standard='    (docs/agents.md)\n"
    )
