"""``mlx-stack-proxy up``: run model servers, LiteLLM and the proxy with one command.

:func:`run` checks what can be checked before anything starts: the packages, the tiers, the ports,
the run directory. :class:`_Stack` then writes the configurations, has the ``Supervisor`` start
LiteLLM and the model servers and after them the proxy, asks each tier once, and waits for a signal.
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
from . import children, configs, ports, probes
from .run_directory import USUAL, RunDirectory, shown
from .supervisor import Console, Supervisor
from .tiers import DEMO_TIERS, LocalTier, chosen_tiers

DEFAULT_PORT = ServerSettings().port
_WARM_UP_SECONDS = 60.0
_OFFERED = ("claude-code", "codex")  # of the clients, where their first request fits
_DEMO_HINT = "asks ten questions, without the proxy and through it. Or ask one yourself:"
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
    parser.add_argument(
        "--tier",
        action="append",
        default=[],
        metavar="NAME=MODEL",
        help="serve this model (a folder, or a Hugging Face id such as "
        "mlx-community/Qwen3-4B-4bit) as this tier; `NAME=` omits a tier; may be repeated "
        "(default: the two demo models, as fast and standard)",
    )
    for option, port, whose in (
        ("--port", DEFAULT_PORT, "the proxy's port"),
        ("--litellm-port", 4000, "LiteLLM's port"),
        ("--model-port", 8081, "the first model server's port; the others follow"),
    ):
        text = f"{whose} (default: %(default)s)"
        parser.add_argument(option, type=int, default=port, metavar="PORT", help=text)
    parser.add_argument(
        "--inside",
        action="store_true",
        help="run the reliability layer inside LiteLLM, which listens on --port",
    )
    parser.add_argument(
        "--run-dir",
        metavar="FOLDER",
        default=USUAL,
        help="the folder of logs and generated configurations (default: %(default)s)",
    )
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
    proxy, litellm = (args.port, "the proxy", "--port"), (args.litellm_port, "LiteLLM")
    ports.require_free(
        [
            *([(args.port, "LiteLLM", "--port")] if args.inside else [proxy]),
            *([] if args.inside else [(*litellm, "--litellm-port")]),
            *((tier.port, f"the {tier.name} tier", "--model-port") for tier in tiers),
        ]
    )
    directory = RunDirectory(args.run_dir)
    open_files.raise_limit()  # LiteLLM inherits the limit, and has two connections for each stream
    try:
        return asyncio.run(_Stack(args, tiers, directory).run())
    finally:
        directory.close()


class _Stack:
    """One run of ``up``, from its first line to its last."""

    def __init__(
        self, args: argparse.Namespace, tiers: Sequence[LocalTier], directory: RunDirectory
    ) -> None:
        self._args = args
        self._tiers = tiers
        self._directory = directory
        names = [tier.name for tier in tiers]
        self._console = Console(name_width=max(len(name) for name in [*names, "litellm"]))
        self._litellm_port: int = args.port if args.inside else args.litellm_port

    async def run(self) -> int:
        asked_to_stop = asyncio.Event()
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            asyncio.get_running_loop().add_signal_handler(number, asked_to_stop.set)
        serving = asyncio.ensure_future(self._serve())
        stopping = asyncio.ensure_future(asked_to_stop.wait())
        try:
            await asyncio.wait({serving, stopping}, return_when=asyncio.FIRST_COMPLETED)
            if serving.done():
                serving.result()  # raises why it can't go on
        finally:
            await tasks.end(serving, stopping)
            self._console.say("All stopped.")
        return 0

    async def _serve(self) -> None:
        begun, tiers, run = time.monotonic(), self._tiers, self._directory
        self._console.say(f"Starting the local stack; it runs in {shown(run.path)}")
        key = f"sk-{secrets.token_urlsafe(32)}"
        run.keep_key(key)
        inside, port, litellm_port = self._args.inside, self._args.port, self._litellm_port
        configs.write_yaml(run.litellm_config, configs.litellm_config(tiers, inside))
        if inside:
            config = configs.inside_config(tiers, port, run.state)
        else:
            config = configs.proxy_config(tiers, port, litellm_port, run.state)
        configs.write_yaml(run.proxy_config, config)
        async with Supervisor(self._console) as supervisor:
            try:
                # LiteLLM first: it takes longest to start, and can start before the model servers.
                backends = [children.litellm(litellm_port, key, run, inside)]
                await supervisor.start([*backends, *(children.model_server(t, run) for t in tiers)])
                warm_up = asyncio.gather(*(self._warm_up(tier, key) for tier in tiers))
                try:
                    await supervisor.start([] if inside else [children.proxy(port, key, run)])
                    await warm_up
                finally:
                    await tasks.end(warm_up)
                self._announce(time.monotonic() - begun, key if inside else None)
                await supervisor.failed()
            finally:
                self._console.say("Stopping …")

    async def _warm_up(self, tier: LocalTier, key: str) -> None:
        """Ask a tier through LiteLLM, whose first request takes seconds; warn if that fails."""
        litellm = f"http://127.0.0.1:{self._litellm_port}"
        try:
            asked = probes.one_token(litellm, tier.name, key, _WARM_UP_SECONDS)
            status, body = await asked
            trouble = "" if status == 200 else probes.brief(status, body)
        except (UpstreamError, TimeoutError) as error:
            trouble = str(error) or "no answer in time"
        if trouble:
            self._console.child(
                tier.name, "warning", f"asking it through LiteLLM failed: {trouble}"
            )

    def _announce(self, seconds: float, key: str | None) -> None:
        """Print what to do next. ``key``: LiteLLM's key, if clients have to send it."""
        url = f"http://127.0.0.1:{self._args.port}"
        # With its folder: that of a virtual environment is seldom on the PATH.
        program = shlex.quote(str(Path(sys.executable).with_name("mlx-stack-proxy")))
        url_option = "" if self._args.port == DEFAULT_PORT else f" --url {url}"
        names = [tier.name for tier in self._tiers]
        tier_option = "" if names[0] == DEMO_TIERS[0] else f" --tier {names[0]}"
        authorization = f"-H 'Authorization: Bearer {key}' " if key else ""
        curl = f"curl -i {url}/v1/chat/completions -H 'Content-Type: application/json'"
        lines = [
            f"Ready after {seconds:.0f} s. Tiers: {', '.join(names)}. In another terminal:",
            *([] if key else [f"\n  {program} demo{url_option}{tier_option}\n", _DEMO_HINT]),
            f"""\n  {curl} {authorization}-d '{{"model":"{names[0]}",{_CURL_BODY}}}'\n""",
            "The header x-mlx-stack-repairs says how the call was repaired. For any OpenAI client:",
            f"\n  export OPENAI_BASE_URL={url}/v1",
            f"  export OPENAI_API_KEY={key or 'local'}\n",
            _agents(self._tiers, f"{program} launch {{}}{url_option}"),
            f"To see what it does, open {url}/mlx-stack/, or:",
            f"\n  {program} status --watch{url_option}",
            f"  {program} events --follow{url_option}\n",
            "Ctrl-C stops all of it.",
        ]
        self._console.say("\n" + "\n".join(lines))


def _agents(tiers: Sequence[LocalTier], command: str) -> str:
    """Say how to start the coding agents that work with these models: the demo models suit none."""
    window = tiers[0].context_window or TierSettings(model="").context_window
    fitting = [c.name for c in CLIENTS if c.name in _OFFERED and c.prompt_tokens < window]
    if not fitting or any(tier.is_demo for tier in tiers):
        more = " with a larger window" if not fitting else ""
        return (
            f"A coding agent needs a real model{more}: stop this and run\n"
            "\n  make run ARGS='--tier fast=MODEL --tier standard='    (docs/agents.md)\n"
        )
    lines = "\n".join(f"  {command.format(name)}" for name in fitting)
    return f"Or a coding agent:\n\n{lines}\n"
