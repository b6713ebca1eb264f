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

from ...settings import UpstreamSettings
from ...settings_source import DEFAULT_FILE, from_mapping
from .. import CommandError, say
from ..local_stack.run_directory import shown, take_key
from ..prober import LiteLLM, NoModels
from .advice import on_litellm
from .model_groups import (
    Groups,
    filled_in,
    from_entries,
    from_info,
    from_model_list,
    from_stack,
    mapping,
)
from .proposal import LITELLM_LINES, Proposal, health_url, propose, text_of

MLX_STACK = Path("~/.mlx-stack")
_HEALTH_SECONDS = 2.0
_DEFAULT = UpstreamSettings()
_HTTP_PORT = 80
_KEY_FROM = "os.environ/"


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
    upstream = {"base_url": base_url, "api_key_env": inventory.key_variable}
    changed = {k: v for k, v in upstream.items() if v and v != getattr(_DEFAULT, k)}
    port = urlsplit(base_url).port or _HTTP_PORT
    text = text_of(proposal, changed, inventory.sources, port if args.inside else None)
    from_mapping(yaml.safe_load(text), "the proposal")  # it loads
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
    config: Any = None  # its content
    key_variable: str = _DEFAULT.api_key_env or ""  # the variable with LiteLLM's key


def _with_litellms_file(path: str | None) -> Inventory:
    file = Path(path or MLX_STACK / "litellm.yaml").expanduser()
    if path is None and not file.exists():
        return Inventory()
    return Inventory(config=_parsed(file), file=shown(file), sources=[shown(file)])


async def _look(base_url: str, litellm_config: str | None) -> Inventory:
    """Look everywhere. Raises :class:`CommandError` if LiteLLM's file can't be used.

    ``litellm_config``: LiteLLM's file; None means mlx-stack's, if there is one.
    """
    found = _with_litellms_file(litellm_config)
    in_file = from_entries(mapping(found.config).get("model_list"))
    in_stack, live = _stack(found), Groups()
    litellm = LiteLLM(UpstreamSettings(base_url=base_url), _key(found), found.key_variable)
    async with contextlib.aclosing(litellm):
        try:
            listed = from_model_list(orjson.loads(await litellm.models()))
            found.sources.insert(0, f"LiteLLM at {base_url}")
            details = from_info(await litellm.details())
            live = filled_in({name: details.get(name, listed[name]) for name in listed}, listed)
        except NoModels as error:
            what = f"LiteLLM at {base_url}: {error}. To do: {error.next_step}."
            found.remarks.append(what)
        if missing := ", ".join(name for name in in_file if live and name not in live):
            message = f"In {found.file}, but not listed by LiteLLM: {missing}."
            found.remarks.append(f"{message} Was it started with that file?")
        groups = found.groups = filled_in(live or in_file or in_stack, in_file, in_stack)
        urls = {name: url for name, group in groups.items() if (url := health_url(group, base_url))}
        asked = (litellm.upstream.answers(url, _HEALTH_SECONDS) for url in urls.values())
        answers = zip(urls.items(), await asyncio.gather(*asked), strict=True)
        groups |= {
            name: replace(groups[name], health_url=url) for (name, url), yes in answers if yes
        }
    return found


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


def _key(found: Inventory) -> str | None:
    """Return LiteLLM's key from the environment or from its file, for our own questions only."""
    key = mapping(mapping(found.config).get("general_settings")).get("master_key")
    in_file = key if isinstance(key, str) and key else None
    if in_file is not None and in_file.startswith(_KEY_FROM):
        found.key_variable, in_file = in_file.removeprefix(_KEY_FROM), None
    if key := os.environ.get(found.key_variable):
        return str(key)
    if in_file is not None:
        found.remarks.append(
            f"LiteLLM's key stands in {found.file}, and isn't copied: the proxy takes it from "
            f"the environment, ${found.key_variable}."
        )
    return in_file


def _report(inventory: Inventory, proposal: Proposal) -> None:
    for tier in proposal.tiers:
        _say(f"tier {tier.name}: {tier.group.name} ({tier.note})", "      ")
    for remark in (*inventory.remarks, *proposal.remarks):
        _say(f"- {remark}", "  ")
    advice = list(on_litellm(inventory.config)) if inventory.file else []
    if advice:
        _say(f"In {inventory.file}, which is left as it is:")
    for sentence in advice:
        _say(f"- {sentence}", "  ")


def _show_next(key_variable: str, key_file: Path | None) -> None:
    """Print the next steps. ``key_file``: the file with the key of a running ``up``'s LiteLLM."""
    with_key = "" if key_file is None else f" --env-file {shown(key_file)}"
    key_is_set = os.environ.get(key_variable) and key_file is None
    _say(f"Wrote {DEFAULT_FILE}. Next:")
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
    say(text, rest=indent, file=sys.stderr)


def _copied(*lines: str) -> None:
    print(*(f"    {line}" for line in lines), sep="\n", file=sys.stderr)
