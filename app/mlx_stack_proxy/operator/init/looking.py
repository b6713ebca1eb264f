"""What there is on this machine: LiteLLM, its configuration file, mlx-stack's files."""

from __future__ import annotations

import asyncio
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import orjson
import yaml

from ...engine.headers import RawHeaders
from ...engine.model_list import ASK_SECONDS, ModelList, names_in
from ...engine.upstream import Upstream, UpstreamError
from ...settings import UpstreamSettings
from ..local_stack.console import shown
from . import advice
from .model_groups import Groups, from_entries, from_model_list, from_stack, mapping, together
from .proposal import health_urls

MLX_STACK = Path("~/.mlx-stack")
_HEALTH_SECONDS = 2.0


class Unreadable(Exception):
    """A file that was asked for can't be used; the message says which and why."""


@dataclass(slots=True)
class Found:
    """What there is. ``file``: LiteLLM's, empty without one, and ``advice`` on it.

    ``key_variable``: where that file takes LiteLLM's key from. ``answering``: the model servers'
    health addresses that answered.
    """

    groups: Groups = field(default_factory=dict)
    sources: list[str] = field(default_factory=list)
    remarks: list[str] = field(default_factory=list)
    file: str = ""
    advice: list[str] = field(default_factory=list)
    key_variable: str | None = None
    answering: set[str] = field(default_factory=set)


async def look(base_url: str, litellm_config: str | None) -> Found:
    """Everything that can be found out. Raises :class:`Unreadable` for LiteLLM's file."""
    found = Found()
    config = _litellm_file(litellm_config, found)
    in_file = from_entries(mapping(config).get("model_list"))
    in_stack = _stack(found)
    upstream = Upstream(UpstreamSettings(base_url=base_url))
    try:
        where = f"LiteLLM at {base_url}"
        live = await _ask(upstream, _key(found, config), where, found.remarks)
        if live is not None:
            found.sources.insert(0, where)
            found.remarks += _unlisted(live, in_file, found.file)
        # LiteLLM's own answer says which models there are; without it, the files do.
        found.groups = together(live or in_file or in_stack, in_file, in_stack)
        found.answering = await _answering(upstream, health_urls(found.groups, base_url))
    finally:
        await upstream.aclose()
    return found


def _litellm_file(named: str | None, found: Found) -> Any:
    """LiteLLM's file as parsed, the one that is named or mlx-stack's; None without one."""
    file = Path(named or MLX_STACK / "litellm.yaml").expanduser()
    if named is None and not file.exists():
        return None
    config = _parsed(file)
    found.file = shown(file)
    found.sources.append(found.file)
    found.advice = advice.on_litellm(config)
    found.key_variable = advice.key_variable(config)
    return config


def _stack(found: Found) -> Groups:
    """mlx-stack's stack: the one called default, else the one that was changed last."""
    folder = (MLX_STACK / "stacks").expanduser()
    files = sorted(folder.glob("*.yaml"), key=lambda file: file.stat().st_mtime, reverse=True)
    file = next((one for one in files if one.stem == "default"), files[0] if files else None)
    if file is None:
        return {}
    try:
        groups = from_stack(_parsed(file))
    except Unreadable as error:
        found.remarks.append(str(error))
        return {}
    if groups:
        found.sources.append(shown(file))
    return groups


def _parsed(file: Path) -> Any:
    try:
        return yaml.safe_load(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise Unreadable(f"{file} can't be read: {error.strerror}") from None
    except Exception:  # PyYAML raises nearly anything at a tag that does not fit its value
        raise Unreadable(f"{file} is not valid YAML") from None


def _key(found: Found, config: Any) -> str | None:
    """LiteLLM's key: from the environment, or from its own file, to ask it here and now."""
    name = found.key_variable or UpstreamSettings().api_key_env or ""
    if key := os.environ.get(name):
        return key
    literal = advice.literal_key(config)
    if literal is not None:
        found.remarks.append(
            f"LiteLLM's key stands in {found.file}, and isn't copied: the proxy takes it from "
            f"the environment, ${name}."
        )
    return literal


async def _ask(upstream: Upstream, key: str | None, where: str, said: list[str]) -> Groups | None:
    """What LiteLLM tells of its models; None if it doesn't."""
    models = ModelList(upstream, key, asyncio.get_running_loop().time)
    try:
        status, body = await models.fetch(None)
    except (UpstreamError, TimeoutError) as error:
        said.append(f"{where}: {str(error) or 'no answer in time'}.")
        return None
    if status != 200 or names_in(body) is None:
        # LiteLLM may answer 500 where it gets no key.
        wants = "Is the key right?" if key else "Has it a key? `export LITELLM_MASTER_KEY=…`."
        said.append(f"{where} answered status {status} when asked for its models. {wants}")
        return None
    groups = from_model_list(orjson.loads(body))
    told = await _details(upstream, key)
    return {
        name: told[name].with_more(group) if name in told else group
        for name, group in groups.items()
    }


async def _details(upstream: Upstream, key: str | None) -> Groups:
    """What ``/v1/model/info`` says; nothing where this key may not ask."""
    headers: RawHeaders = [(b"authorization", f"Bearer {key}".encode())] if key else []
    try:
        async with asyncio.timeout(ASK_SECONDS):
            response = await upstream.send("GET", "/v1/model/info", headers)
            try:
                body = await response.read()
            finally:
                await response.aclose()
        return from_entries(mapping(orjson.loads(body)).get("data"))
    except (UpstreamError, TimeoutError, orjson.JSONDecodeError):
        return {}


def _unlisted(live: Groups, in_file: Groups, file: str) -> list[str]:
    missing = ", ".join(name for name in in_file if name not in live)
    if not missing:
        return []
    return [f"In {file}, but not listed by LiteLLM: {missing}. Was it started with that file?"]


async def _answering(upstream: Upstream, urls: list[str]) -> set[str]:
    answers = await asyncio.gather(*(upstream.answers(url, _HEALTH_SECONDS) for url in urls))
    return {url for url, there in zip(urls, answers, strict=True) if there}
