"""The command ``init``: look for LiteLLM and its models, print what was found, write the file."""

from __future__ import annotations

import argparse
import asyncio
import os
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import yaml

from ...printable import printable, wrapped
from ...settings import UpstreamSettings
from ...settings_source import DEFAULT_FILE, from_mapping
from .. import CommandError
from ..local_stack.run_directory import shown, take_key
from .proposal import Proposal, propose
from .rendering import LITELLM_LINES, text_of

if TYPE_CHECKING:
    from .looking import Inventory

_DEFAULT = UpstreamSettings()
_HTTP_PORT = 80
_WIDTH = 80


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of ``init``."""
    parser.description = (
        "Read LiteLLM's lists of models and write a configuration with a tier for each suitable "
        "model. Calls no model and changes no other file."
    )
    parser.add_argument(
        "--base-url", default=_DEFAULT.base_url, help="LiteLLM's address (default: %(default)s)"
    )
    parser.add_argument(
        "--litellm-config",
        metavar="FILE",
        help="LiteLLM's configuration (default: ~/.mlx-stack/litellm.yaml, if it exists)",
    )
    parser.add_argument("--dry-run", action="store_true", help="print the file, write nothing")
    parser.add_argument(
        "--inside",
        action="store_true",
        help="for the reliability layer inside LiteLLM; also print what LiteLLM's file needs",
    )
    parser.add_argument("--force", action="store_true", help="overwrite an existing file")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Write the file, or show it. Raises ``CommandError`` if there is nothing to write."""
    from . import looking

    output = Path(DEFAULT_FILE)
    if output.exists() and not (args.force or args.dry_run):
        message = f"{output} is there already; --force writes over it, --dry-run only shows."
        raise CommandError(message)
    settings = from_mapping({"upstream": {"base_url": args.base_url}}, "--base-url")
    base_url = settings.upstream.base_url
    key_file = take_key(os.environ, base_url)
    inventory = asyncio.run(looking.look(base_url, args.litellm_config))
    proposal = propose(inventory.groups)
    _report(inventory, proposal)
    if not proposal.tiers:
        raise CommandError(
            "No model was found to make a tier of. LiteLLM has to run and to list its models, or "
            "name its file with --litellm-config; `mlx-stack-proxy up` starts a whole stack of its "
            "own."
        )
    text = _text(args.inside, proposal, inventory, base_url)
    if args.dry_run:
        sys.stdout.write(text)
        return 0
    output.write_text(text, encoding="utf-8")
    if args.inside:
        _show_next_inside(output, base_url)
    else:
        _show_next(inventory.key_variable, key_file)
    return 0


def _text(inside: bool, proposal: Proposal, inventory: Inventory, base_url: str) -> str:
    """Return the file's text, having checked that it loads. Raises :class:`SettingsError`."""
    upstream = {"base_url": base_url, "api_key_env": inventory.key_variable}
    changed = {k: v for k, v in upstream.items() if v and v != getattr(_DEFAULT, k)}
    port = urlsplit(base_url).port or _HTTP_PORT
    text = text_of(proposal, changed, inventory.sources, port if inside else None)
    from_mapping(yaml.safe_load(text), "the proposal")
    return text


def _report(inventory: Inventory, proposal: Proposal) -> None:
    for tier in proposal.tiers:
        _say(f"tier {tier.name}: {tier.group.name} ({tier.note})", "      ")
    for remark in (*inventory.remarks, *proposal.remarks):
        _say(f"- {remark}", "  ")
    if inventory.advice:
        _say(f"In {inventory.file}, which is left as it is:")
    for advice in inventory.advice:
        _say(f"- {advice}", "  ")


def _show_next(key_variable: str, key_file: Path | None) -> None:
    """Print the next steps. ``key_file``: the file with the key of a running ``up``'s LiteLLM."""
    _say(f"Wrote {DEFAULT_FILE}. Next:")
    with_key = "" if key_file is None else f" --env-file {shown(key_file)}"
    key_is_set = os.environ.get(key_variable) and key_file is None
    _copied(
        "mlx-stack-proxy check",
        f"mlx-stack-proxy serve{with_key}",
        "export OPENAI_BASE_URL=http://127.0.0.1:4100/v1    # for the agents",
        *([f"export OPENAI_API_KEY=${key_variable}"] if key_is_set else []),
    )


def _show_next_inside(output: Path, base_url: str) -> None:
    _say(f"Wrote {output}. Next, in LiteLLM's own file:")
    _copied(*LITELLM_LINES)
    _say("and start LiteLLM where this package is installed, too, with")
    _copied(f"export MLX_STACK_CONFIG={shlex.quote(str(output.resolve()))}")
    _say(f"Agents go on asking LiteLLM, at {base_url}/v1.")


def _say(text: str, indent: str = "") -> None:
    """Print to standard error: with ``--dry-run`` standard output is the file."""
    print(*wrapped(printable(text), _WIDTH, rest=indent), sep="\n", file=sys.stderr)


def _copied(*lines: str) -> None:
    """Print lines that are to be copied."""
    print(*(f"    {line}" for line in lines), sep="\n", file=sys.stderr)
