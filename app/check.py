"""``mlx-stack-proxy check``: the configuration, LiteLLM, each tier and what tells the memory's
pressure elsewhere, one line each."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Iterator
from urllib.parse import urlsplit, urlunsplit

from .core.pressure import Level
from .core.tiers import is_listed
from .proxy.memory_readers import HostMemory
from .proxy.model_list import ModelList, names_in
from .proxy.services import upstream_key
from .proxy.upstream import Upstream, UpstreamError
from .settings import Settings
from .settings_source import SettingsError, load

Line = tuple[bool, str]


def run(config: str | None) -> int:
    """Print the lines; 0 if all is well, 1 if something is not."""
    try:
        settings = load(config)
    except SettingsError as error:
        for problem in error.problems:
            _say((False, f"{error.source}: {problem}"))
        return 1
    lines = [(True, "configuration"), *consistency(settings)]
    for line in lines:
        _say(line)
    found = asyncio.run(_probe(settings))
    rules = settings.reliability.memory_pressure
    if rules.enabled and rules.source.startswith("http"):
        found.append(asyncio.run(_memory(rules.source)))
    for line in found:
        _say(line)
    return 0 if all(good for good, _ in [*lines, *found]) else 1


def _say(line: Line) -> None:
    good, text = line
    print(f"{'ok  ' if good else 'FAIL'}  {text}")  # noqa: T201


def consistency(settings: Settings) -> Iterator[Line]:
    """What each setting allows but the whole contradicts."""
    total = settings.reliability.escalation.exchange_timeout
    for name, tier in settings.tiers.items():
        for key in ("first_token_timeout", "idle_timeout", "tool_silence_timeout"):
            limit = getattr(tier, key)
            if limit > total:
                yield (
                    False,
                    f"tiers.{name}.{key} ({limit:g} s) outlives reliability.escalation."
                    f"exchange_timeout ({total:g} s), so it can never be reached",
                )


async def _probe(settings: Settings) -> list[Line]:
    key_name = settings.upstream.api_key_env
    upstream = Upstream(settings.upstream)
    key = upstream_key(settings)
    models = ModelList(upstream, key, time.monotonic)
    where = f"LiteLLM at {_without_credentials(settings.upstream.base_url)}"
    try:
        status, body = await models.fetch(None)
    except (UpstreamError, TimeoutError) as error:
        return [(False, f"{where}: {str(error) or 'no answer in time'}")]
    finally:
        await upstream.aclose()
    names = names_in(body) if status == 200 else None
    if names is None:
        key_is = _state_of_key(key_name)
        why = "refused the key" if status in (400, 401, 403) else f"answered status {status}"
        why = f"{why} when asked for its models ({key_is})"
        return [(True, f"{where}: reachable"), (False, f"{where}: {why}")]
    lines: list[Line] = [(True, f"{where}: reachable, key right, {len(names)} models")]
    for name, tier in settings.tiers.items():
        known = is_listed(tier.model, names)
        what = "known to LiteLLM" if known else f"not among LiteLLM's: {_some(names)}"
        lines.append((known, f"tier {name}: model {tier.model!r} is {what}"))
    return lines


async def _memory(url: str) -> Line:
    """Whether another machine tells its memory pressure."""
    where = f"memory pressure at {_without_credentials(url)}"
    host = HostMemory(url)
    try:
        reading = await host.read()
    except (UpstreamError, TimeoutError, ValueError) as error:
        return False, f"{where}: {str(error) or 'no answer in time'}"
    finally:
        await host.close()
    return True, f"{where}: {Level(reading.level or 0).word}"


def _without_credentials(url: str) -> str:
    parts = urlsplit(url)
    return urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2]))


def _state_of_key(name: str | None) -> str:
    if name is None:
        return "upstream.api_key_env names no variable"
    return f"${name} is set" if os.environ.get(name) else f"${name} is not set"


def _some(names: frozenset[str]) -> str:
    shown = sorted(names)[:8]
    return ", ".join(shown) + (", …" if len(names) > len(shown) else "")
