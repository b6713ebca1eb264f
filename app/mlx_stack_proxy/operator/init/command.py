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
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import orjson
import yaml
from msgspec.structs import replace

from ...printable import without_credentials
from ...settings import UpstreamSettings
from ...settings_source import DEFAULT_FILE, from_mapping
from .. import CommandError, say
from ..local_stack.run_directory import shown, take_key
from ..prober import LiteLLM, NoModels
from .advice import on_litellm
from .model_groups import Groups, filled_in, from_entries, from_model_list, from_stack, mapping
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
    add = parser.add_argument
    add("--base-url", default=_DEFAULT.base_url, help="LiteLLM's address (default: %(default)s)")
    text = "LiteLLM's configuration (default: ~/.mlx-stack/litellm.yaml, if it exists)"
    add("--litellm-config", metavar="FILE", help=text)
    add("--dry-run", action="store_true", help="print the file, write nothing")
    text = "for the reliability layer inside LiteLLM; also print what LiteLLM's file needs"
    add("--inside", action="store_true", help=text)
    add("--force", action="store_true", help="overwrite an existing file")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Write the file, or show it. Raises ``CommandError`` if there is nothing to write."""
    output = Path(DEFAULT_FILE)
    if output.exists() and not (args.force or args.dry_run):
        raise CommandError(f"{output} exists; --force overwrites it, --dry-run only prints.")
    settings = from_mapping({"upstream": {"base_url": args.base_url}}, "--base-url")
    base_url = settings.upstream.base_url
    key_file = take_key(os.environ, base_url)
    found = _in_litellms_file(args.litellm_config)
    asyncio.run(_look(found, base_url))
    proposal = propose(found.groups)
    _report(found, proposal)
    if not proposal.tiers:
        raise CommandError(
            "No model was found for a tier. Start LiteLLM, so that it lists its models, or name "
            "its file with --litellm-config. `mlx-stack-proxy up` starts a complete local stack."
        )
    upstream = {"base_url": base_url, "api_key_env": found.key_variable}
    changed = {k: v for k, v in upstream.items() if v and v != getattr(_DEFAULT, k)}
    port = urlsplit(base_url).port or _HTTP_PORT
    text = text_of(proposal, changed, found.sources, port if args.inside else None)
    from_mapping(yaml.safe_load(text), "the proposal")  # it loads
    if args.dry_run:
        sys.stdout.write(text)
        return 0
    output.write_text(text, encoding="utf-8")
    _show_next(found.key_variable, key_file, base_url if args.inside else "")
    return 0


@dataclass(slots=True)
class _Found:
    """The models and files that were found; :func:`_look` fills the fields in step by step."""

    groups: Groups = field(default_factory=dict)
    sources: list[str] = field(default_factory=list)  # where the groups are from, for the file
    remarks: list[str] = field(default_factory=list)  # sentences for the user
    file: str = ""  # LiteLLM's configuration file, as people write it; "": none
    config: Any = None  # its content
    key_variable: str = _DEFAULT.api_key_env or ""  # the variable with LiteLLM's key


def _in_litellms_file(path: str | None) -> _Found:
    """Read LiteLLM's file; None means mlx-stack's, if there is one. Raises ``CommandError``."""
    file = Path(path or MLX_STACK / "litellm.yaml").expanduser()
    if path is None and not file.exists():
        return _Found()
    return _Found(config=_parsed(file), file=shown(file), sources=[shown(file)])


async def _look(found: _Found, base_url: str) -> None:
    """Add what the stack's file and LiteLLM itself say."""
    in_file = from_entries(mapping(found.config).get("model_list"))
    in_stack, live, where = _stack(found), Groups(), f"LiteLLM at {without_credentials(base_url)}"
    litellm = LiteLLM(UpstreamSettings(base_url=base_url), _key(found), found.key_variable)
    async with contextlib.aclosing(litellm):
        try:
            listed = from_model_list(orjson.loads(await litellm.models()))
            found.sources.insert(0, where)
            details = from_entries(mapping(await litellm.details()).get("data"))
            live = filled_in({name: details.get(name, listed[name]) for name in listed}, listed)
        except NoModels as error:
            found.remarks.append(f"{where}: {error}. To do: {error.next_step}.")
        if missing := ", ".join(name for name in in_file if live and name not in live):
            message = f"In {found.file}, but not listed by LiteLLM: {missing}."
            found.remarks.append(f"{message} Was it started with that file?")
        found.groups = filled_in(live or in_file or in_stack, in_file, in_stack)

        async def asked(group: Any) -> Any:
            url = health_url(group, base_url)
            answers = url and await litellm.upstream.answers(url, _HEALTH_SECONDS)
            return replace(group, health_url=url if answers else "")

        groups = await asyncio.gather(*map(asked, found.groups.values()))
        found.groups = dict(zip(found.groups, groups, strict=True))


def _stack(found: _Found) -> Groups:
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


def _key(found: _Found) -> str | None:
    """Return LiteLLM's key from the environment or from its file, for our own questions only."""
    key = mapping(mapping(found.config).get("general_settings")).get("master_key")
    in_file = key if isinstance(key, str) and key else None
    if in_file is not None and in_file.startswith(_KEY_FROM):
        found.key_variable, in_file = in_file.removeprefix(_KEY_FROM), None
    if key := os.environ.get(found.key_variable):
        return str(key)
    if in_file is not None:
        found.remarks.append(
            f"LiteLLM's key is in {found.file} and was not copied: the proxy reads it from the "
            f"environment, ${found.key_variable}."
        )
    return in_file


def _report(found: _Found, proposal: Proposal) -> None:
    for tier in proposal.tiers:
        _say(f"tier {tier.name}: {tier.group.name} ({tier.note})", "      ")
    for remark in (*found.remarks, *proposal.remarks):
        _say(f"- {remark}", "  ")
    advice = list(on_litellm(found.config)) if found.file else []
    if advice:
        _say(f"In {found.file}, which was not changed:")
    for sentence in advice:
        _say(f"- {sentence}", "  ")


def _show_next(key_variable: str, key_file: Path | None, inside: str) -> None:
    """Print the next steps. ``inside``: the URL of the LiteLLM that has the layer, or ""."""
    if inside:
        _say(f"Wrote {DEFAULT_FILE}. Next, in LiteLLM's own file:")
        _copied(*LITELLM_LINES)
        _say("Then start LiteLLM, in an environment that also has this package, with")
        _copied(f"export MLX_STACK_CONFIG={shlex.quote(str(Path(DEFAULT_FILE).resolve()))}")
        _say(f"Agents still call LiteLLM, at {inside}/v1.")
        return
    _say(f"Wrote {DEFAULT_FILE}. Next:")
    key_is_set = os.environ.get(key_variable) and key_file is None
    _copied(
        "mlx-stack-proxy check",
        # The key of a running `up`'s LiteLLM is in a file.
        f"mlx-stack-proxy serve{f' --env-file {shown(key_file)}' if key_file else ''}",
        "export OPENAI_BASE_URL=http://127.0.0.1:4100/v1    # for the agents",
        *([f"export OPENAI_API_KEY=${key_variable}"] if key_is_set else []),
    )


def _say(text: str, indent: str = "") -> None:
    """Print to standard error: with ``--dry-run`` standard output is the file."""
    say(text, rest=indent, file=sys.stderr)


def _copied(*lines: str) -> None:
    print(*(f"    {line}" for line in lines), sep="\n", file=sys.stderr)
