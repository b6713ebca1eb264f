"""The command ``init``: look for LiteLLM and its models, print what was found, write the file.

LiteLLM's own answer decides which models there are; its file, and mlx-stack's, only add details
that the answer lacks. If LiteLLM doesn't answer, the files decide.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import shlex
import sys
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import orjson
import yaml

from ...printable import printable, wrapped
from ...settings import UpstreamSettings
from ...settings_source import DEFAULT_FILE, from_mapping
from .. import CommandError
from ..asking import LiteLLM, NoModels
from ..local_stack.run_directory import shown, take_key
from . import advice
from .model_groups import (
    Groups,
    filled_in,
    from_entries,
    from_info,
    from_model_list,
    from_stack,
    mapping,
)
from .proposal import Proposal, health_url, propose
from .rendering import LITELLM_LINES, text_of

MLX_STACK = Path("~/.mlx-stack")
_HEALTH_SECONDS = 2.0
_DEFAULT = UpstreamSettings()
_HTTP_PORT = 80
_WIDTH = 80


def add_init(parser: argparse.ArgumentParser) -> None:
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
    output = Path(DEFAULT_FILE)
    if output.exists() and not (args.force or args.dry_run):
        message = f"{output} exists; --force overwrites it, --dry-run only prints."
        raise CommandError(message)
    settings = from_mapping({"upstream": {"base_url": args.base_url}}, "--base-url")
    base_url = settings.upstream.base_url
    key_file = take_key(os.environ, base_url)
    inventory = asyncio.run(_look(base_url, args.litellm_config))
    proposal = propose(inventory.groups)
    _report(inventory, proposal)
    if not proposal.tiers:
        raise CommandError(
            "No model was found for a tier. LiteLLM has to run and to list its models, or "
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


@dataclass(slots=True)
class Inventory:
    """The models and files that were found; :func:`_look` fills the fields in step by step."""

    groups: Groups = field(default_factory=dict)
    sources: list[str] = field(default_factory=list)  # where the groups are from, for the file
    remarks: list[str] = field(default_factory=list)  # sentences for the user
    file: str = ""  # LiteLLM's configuration file, as people write it; "": none
    advice: list[str] = field(default_factory=list)  # what to change in that file
    key_variable: str = UpstreamSettings().api_key_env or ""  # the variable with LiteLLM's key


async def _look(base_url: str, litellm_config: str | None) -> Inventory:
    """Look everywhere. Raises :class:`CommandError` if LiteLLM's file can't be used.

    ``litellm_config``: LiteLLM's file; None means mlx-stack's, if there is one.
    """
    found = Inventory()
    config = _litellm_file(litellm_config, found)
    in_file = from_entries(mapping(config).get("model_list"))
    in_stack = _stack(found)
    key = _key(found, config)
    litellm = LiteLLM(UpstreamSettings(base_url=base_url), key, found.key_variable)
    async with contextlib.aclosing(litellm):
        live: Groups = {}
        try:
            listed = from_model_list(orjson.loads(await litellm.models()))
            found.sources.insert(0, f"LiteLLM at {base_url}")
            details = from_info(await litellm.details())
            live = {name: details.get(name, group) for name, group in listed.items()}
            live = filled_in(live, listed)
        except NoModels as error:
            what = f"LiteLLM at {base_url}: {error}. To do: {error.next_step}."
            found.remarks.append(what)
        if missing := ", ".join(name for name in in_file if live and name not in live):
            message = f"In {found.file}, but not listed by LiteLLM: {missing}."
            found.remarks.append(f"{message} Was it started with that file?")
        found.groups = filled_in(live or in_file or in_stack, in_file, in_stack)
        await _add_health_urls(litellm, found.groups, base_url)
    return found


def _litellm_file(path: str | None, found: Inventory) -> Any:
    """Parse LiteLLM's file (at ``path``, else mlx-stack's); return None if there is none."""
    file = Path(path or MLX_STACK / "litellm.yaml").expanduser()
    if path is None and not file.exists():
        return None
    config = _parsed(file)
    found.file = shown(file)
    found.sources.append(found.file)
    found.advice = list(advice.on_litellm(config))
    return config


def _stack(found: Inventory) -> Groups:
    """Return the groups of mlx-stack's stack: the one called default, else the newest."""
    files = list((MLX_STACK / "stacks").expanduser().glob("*.yaml"))
    if not files:
        return {}
    file = max(files, key=lambda file: (file.stem == "default", file.stat().st_mtime))
    try:
        groups = from_stack(_parsed(file))
    except CommandError as error:
        found.remarks.append(str(error))
        return {}
    found.sources += [shown(file)] if groups else []
    return groups


def _parsed(file: Path) -> Any:
    try:
        return yaml.safe_load(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise CommandError(f"{file} can't be read: {error.strerror}") from None
    except Exception:  # PyYAML raises nearly anything at a tag that does not fit its value
        raise CommandError(f"{file} is not valid YAML") from None


def _key(found: Inventory, config: Any) -> str | None:
    """Return LiteLLM's key from the environment or from its file, for our own questions only."""
    variable, literal = advice.master_key(config)
    found.key_variable = variable or found.key_variable
    if key := os.environ.get(found.key_variable):
        return key
    if literal is not None:
        found.remarks.append(
            f"LiteLLM's key stands in {found.file}, and isn't copied: the proxy takes it from "
            f"the environment, ${found.key_variable}."
        )
    return literal


async def _add_health_urls(litellm: LiteLLM, groups: Groups, base_url: str) -> None:
    """Ask the model servers that can be reached from here; note the URLs of those that answer."""
    urls = {name: url for name, group in groups.items() if (url := health_url(group, base_url))}
    ask = litellm.upstream.answers
    answers = await asyncio.gather(*(ask(url, _HEALTH_SECONDS) for url in urls.values()))
    for (name, url), answers_there in zip(urls.items(), answers, strict=True):
        if answers_there:
            groups[name] = replace(groups[name], health_url=url)


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
    for sentence in inventory.advice:
        _say(f"- {sentence}", "  ")


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
    print(*(f"    {line}" for line in lines), sep="\n", file=sys.stderr)
