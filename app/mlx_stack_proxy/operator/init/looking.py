"""Look for LiteLLM, its configuration file and mlx-stack's files on this machine.

LiteLLM's own answer decides which models there are; its file, and mlx-stack's, only add details
that the answer lacks. If LiteLLM doesn't answer, the files decide.
"""

from __future__ import annotations

import asyncio
import os
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import orjson
import yaml

from ...engine.headers import RawHeaders
from ...engine.model_list import ASK_SECONDS
from ...engine.upstream import Upstream, UpstreamError
from ...settings import UpstreamSettings
from .. import CommandError
from ..litellm_probe import NoModels, list_models
from ..local_stack.run_directory import shown
from . import advice
from .model_groups import Groups, filled_in, from_entries, from_model_list, from_stack, mapping
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
    inventory = Inventory()
    config = _litellm_file(litellm_config, inventory)
    in_file = from_entries(mapping(config).get("model_list"))
    in_stack = _stack(inventory)
    upstream = Upstream(UpstreamSettings(base_url=base_url))
    try:
        live = await _live(upstream, base_url, _key(inventory, config), inventory)
        if missing := ", ".join(name for name in in_file if live and name not in live):
            message = f"In {inventory.file}, but not listed by LiteLLM: {missing}."
            inventory.remarks.append(f"{message} Was it started with that file?")
        groups = filled_in(live or in_file or in_stack, in_file, in_stack)
        inventory.groups = await _with_health_urls(upstream, groups, base_url)
    finally:
        await upstream.aclose()
    return inventory


def _litellm_file(path: str | None, inventory: Inventory) -> Any:
    """Parse LiteLLM's file (at ``path``, else mlx-stack's); return None if there is none."""
    file = Path(path or MLX_STACK / "litellm.yaml").expanduser()
    if path is None and not file.exists():
        return None
    config = _parsed(file)
    inventory.file = shown(file)
    inventory.sources.append(inventory.file)
    inventory.advice = list(advice.on_litellm(config))
    return config


def _stack(inventory: Inventory) -> Groups:
    """Return the groups of mlx-stack's stack: the one called default, else the newest."""
    files = list((MLX_STACK / "stacks").expanduser().glob("*.yaml"))
    if not files:
        return {}
    file = max(files, key=lambda file: (file.stem == "default", file.stat().st_mtime))
    try:
        groups = from_stack(_parsed(file))
    except CommandError as error:
        inventory.remarks.append(str(error))
        return {}
    if groups:
        inventory.sources.append(shown(file))
    return groups


def _parsed(file: Path) -> Any:
    try:
        return yaml.safe_load(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise CommandError(f"{file} can't be read: {error.strerror}") from None
    except Exception:  # PyYAML raises nearly anything at a tag that does not fit its value
        raise CommandError(f"{file} is not valid YAML") from None


def _key(inventory: Inventory, config: Any) -> str | None:
    """Return LiteLLM's key from the environment or from its file, for our own questions only."""
    variable, literal = advice.master_key(config)
    inventory.key_variable = variable or inventory.key_variable
    if key := os.environ.get(inventory.key_variable):
        return key
    if literal is not None:
        inventory.remarks.append(
            f"LiteLLM's key stands in {inventory.file}, and isn't copied: the proxy takes it from "
            f"the environment, ${inventory.key_variable}."
        )
    return literal


async def _live(upstream: Upstream, base_url: str, key: str | None, inventory: Inventory) -> Groups:
    """Return the model groups that LiteLLM lists; none if it can't be asked."""
    litellm = f"LiteLLM at {base_url}"
    try:
        listed = await list_models(upstream, key, inventory.key_variable)
    except NoModels as error:
        inventory.remarks.append(f"{litellm}: {error}. To do: {error.next_step}.")
        return {}
    inventory.sources.insert(0, litellm)
    groups, details = from_model_list(orjson.loads(listed)), await details_of(upstream, key)
    return filled_in({name: details.get(name, group) for name, group in groups.items()}, groups)


async def details_of(upstream: Upstream, key: str | None) -> Groups:
    """Return the groups of ``/v1/model/info``; none if LiteLLM fails or refuses the key."""
    headers: RawHeaders = [(b"authorization", f"Bearer {key}".encode())] if key else []
    try:
        async with asyncio.timeout(ASK_SECONDS):
            _, body = await upstream.fetch("GET", "/v1/model/info", headers)
        return from_entries(mapping(orjson.loads(body)).get("data"))
    except (UpstreamError, TimeoutError, orjson.JSONDecodeError):
        return {}


async def _with_health_urls(upstream: Upstream, groups: Groups, base_url: str) -> Groups:
    """Ask the model servers that can be reached from here; note the URLs of those that answer."""
    urls = {name: url for name, group in groups.items() if (url := health_url(group, base_url))}
    answers = await asyncio.gather(*(upstream.answers(u, _HEALTH_SECONDS) for u in urls.values()))
    answering = {name: url for (name, url), ok in zip(urls.items(), answers, strict=True) if ok}
    return {
        name: replace(group, health_url=answering.get(name, "")) for name, group in groups.items()
    }
