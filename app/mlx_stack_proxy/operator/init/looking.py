"""Look for LiteLLM, its configuration file and mlx-stack's files on this machine.

LiteLLM's own answer decides which models there are; its file, and mlx-stack's, only add details
that the answer lacks. If LiteLLM doesn't answer, the files decide.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import orjson
import yaml

from ...settings import UpstreamSettings
from .. import CommandError
from ..asking import LiteLLM, NoModels
from ..local_stack.run_directory import shown
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
from .proposal import health_url

MLX_STACK = Path("~/.mlx-stack")
_HEALTH_SECONDS = 2.0


@dataclass(slots=True)
class Inventory:
    """The models and files that were found; :func:`look` fills the fields in step by step."""

    groups: Groups = field(default_factory=dict)
    sources: list[str] = field(default_factory=list)  # where the groups are from, for the file
    remarks: list[str] = field(default_factory=list)  # sentences for the user
    file: str = ""  # LiteLLM's configuration file, as people write it; "": none
    advice: list[str] = field(default_factory=list)  # what to change in that file
    key_variable: str = UpstreamSettings().api_key_env or ""  # the variable with LiteLLM's key


async def look(base_url: str, litellm_config: str | None) -> Inventory:
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
