"""``mlx-stack-proxy check``: whether the configuration, LiteLLM, the tiers and another machine's
memory pressure can be used.

Each finding is a line with a mark (:data:`Line`); a line that needs action is followed by one
marked :data:`NEXT`. The models are asked by ``litellm_probe.Probe``. With a running ``up`` the
command checks the configuration that ``up`` has written.
"""

from __future__ import annotations

import argparse
import asyncio
import dataclasses
import os
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any, Final, Literal
from urllib.parse import urlsplit, urlunsplit

from ..driver.services import upstream_key
from ..engine.model_list import ASK_SECONDS, names_in
from ..engine.upstream import Upstream, UpstreamError
from ..escalation.cloud import Cloud, cloud_key
from ..escalation.tiers import is_listed, may_enter_cloud
from ..local_address import local_url
from ..memory_pressure.pressure import Level
from ..memory_pressure.readers import HostMemory
from ..printable import printable, wrapped
from ..server import workers
from ..settings import Settings, StateSettings
from ..settings_cloud import CLOUD_TIER
from ..settings_source import SettingsError, Sources, read
from . import settings_shown
from .chat_templates import shows_doubled_braces
from .init.looking import details_of
from .litellm_probe import RIGHT_ADDRESS, Mark, NoModels, Probe, is_litellm, list_models
from .local_stack import run_directory

NEXT: Final = "→"  # the mark of a line that says what to do about the line before
Line = tuple[Mark | Literal["→"], str]
_ABOUT_TIERS = {  # what to do about a tier, by the mark of its line
    "FAIL": "read LiteLLM's log and the model server's; is that server running?",
    "note": "it can be used as it is; for a model without tools set tiers.{name}.tools: false",
}
# What to do about a configuration, by how its first problem begins.
_ABOUT_FILES = {
    "can't be read": "name the file with --config; `mlx-stack-proxy init` writes a first one",
    "is not valid YAML": "correct the file at that place",
}
_ABOUT_KEYS = "docs/settings.md has every key; `mlx-stack-proxy config schema` for editors"
_SQLITE = b"SQLite format 3\0"  # with which its files begin
_WIDTH = 80


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Check the configuration, LiteLLM and its models, then ask each tier of this machine for a "
        "token, a stream and a tool call. Exit code: 1 if a line says FAIL, else 0."
    )
    mode = parser.add_mutually_exclusive_group()
    mode.add_argument(
        "--settings", action="store_true", help="only print every setting and where it comes from"
    )
    mode.add_argument("--no-probe", action="store_true", help="call no model")
    mode.add_argument("--cloud", action="store_true", help="call cloud tiers too")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    if not args.settings:
        return check(args.config, probe=not args.no_probe, cloud=args.cloud)
    loaded = _read(args.config)
    for line in settings_shown.lines(*loaded) if loaded else ():
        print(line)
    return 0 if loaded else 1


def check(config: str | None, *, probe: bool = True, cloud: bool = False) -> int:
    """Print the findings; return the exit code: 0, or 1 if a line says FAIL.

    ``probe``: whether the tiers' models are asked; ``cloud``: whether that includes tiers that are
    not local.
    """
    loaded = _read(config)
    if loaded is None:
        return 1
    settings, sources = loaded
    _say(("ok", f"configuration: {sources.path or 'no file, the defaults'}"))
    for key in sources.retired():
        _say(("note", f"{key}: has no effect any more; take it out"))
    return asyncio.run(_run(settings, probe=probe, cloud=cloud))


def _read(config: str | None) -> tuple[Settings, Sources] | None:
    """Return the settings and their sources; None after printing why they can't be used."""
    try:
        settings, sources = _beside_up(read(config))
        run_directory.take_key(os.environ, settings.upstream.base_url)
        return settings, sources
    except SettingsError as error:
        for problem in error.problems:
            _say(("FAIL", f"{error.source}: {problem}"))
        found = (
            step for start, step in _ABOUT_FILES.items() if error.problems[0].startswith(start)
        )
        _say((NEXT, next(found, _ABOUT_KEYS)))
        return None


def _beside_up(sources: Sources) -> tuple[Settings, Sources]:
    """Return the settings of the ``up`` that listens on the proxy's port, if one does.

    A configuration file of the user's own takes precedence over the one of ``up``. Raises
    ``SettingsError`` if ``serve`` would refuse it.
    """
    settings = sources.settings()
    folder = run_directory.running_at(local_url(settings))
    config_file = None if folder is None else folder / run_directory.PROXY_CONFIG
    if config_file is None or (sources.path and sources.path.resolve() != config_file):
        workers.check_servable(settings)
        return settings, sources
    sources = read(str(config_file))
    settings = sources.settings()
    if "upstream" not in sources.file:  # `up --inside`: LiteLLM itself listens on the proxy's port
        upstream = dataclasses.replace(settings.upstream, base_url=local_url(settings))
        settings = dataclasses.replace(settings, upstream=upstream)
    return settings, sources


async def _run(settings: Settings, *, probe: bool, cloud: bool) -> int:
    passed = True
    async for line in _lines(settings, probe=probe, cloud=cloud):
        _say(line)
        passed = passed and line[0] != "FAIL"
    return 0 if passed else 1


async def _lines(settings: Settings, *, probe: bool, cloud: bool) -> AsyncIterator[Line]:
    upstream = Upstream(settings.upstream)
    try:
        names, litellm_lines = await _litellm(settings, upstream)
        for line in litellm_lines:
            yield line
        direct = _direct_tiers(settings, names)
        for line in _cloud_lines(settings, direct):
            yield line
        async for line in _health(settings, upstream):
            yield line
        listed = [n for n, tier in settings.tiers.items() if is_listed(tier.model, names or ())]
        asked = [n for n in settings.tiers if n in direct or n in listed] if probe else []
        async for line in _tiers(settings, upstream, asked, direct, cloud=cloud):
            yield line
        async for line in _templates(settings, upstream, listed if probe else []):
            yield line
    finally:
        await upstream.aclose()
    if problem := await _store_problem(settings.state):
        yield "FAIL", f"state: {problem}"
        yield NEXT, "without it budgets and loops are forgotten at a restart; correct `state`"
    rules = settings.reliability.memory_pressure
    if rules.enabled and rules.source.startswith("http"):
        line = await _memory(rules.source)
        yield line
        if line[0] == "FAIL":
            yield NEXT, "run `mlx-stack-proxy pressure --serve` on that machine"


async def _tiers(
    settings: Settings, upstream: Upstream, names: list[str], direct: list[str], *, cloud: bool
) -> AsyncIterator[Line]:
    """Ask the tiers of these names; those in ``direct`` in the cloud itself."""
    fallback = settings.reliability.escalation.cloud_fallback
    connection = Cloud(fallback) if fallback is not None and direct else None
    try:
        for name in names:
            if not (settings.tiers[name].local or cloud):
                yield "note", f"tier {name}: not on this machine, and not asked; --cloud does"
                continue
            if name in direct and (fallback is None or cloud_key(fallback) is None):
                continue  # a line has said so
            probe = Probe(settings, upstream, connection if name in direct else None)
            async for mark, text in probe.tier(name):
                yield mark, f"tier {name}: {text}"
                if mark in _ABOUT_TIERS:
                    yield NEXT, _ABOUT_TIERS[mark].format(name=name)
    finally:
        if connection is not None:
            await connection.upstream.aclose()


async def _health(settings: Settings, upstream: Upstream) -> AsyncIterator[Line]:
    """Yield a failure for each tier at whose ``health_url`` nobody listens."""
    for name, tier in settings.tiers.items():
        if tier.health_url and await upstream.health(tier.health_url, ASK_SECONDS) == "gone":
            url = _without_credentials(tier.health_url)
            yield "FAIL", f"tier {name}: nobody listens at its health_url, {url}"
            yield NEXT, f"start its model server, or correct tiers.{name}.health_url"


async def _store_problem(state: StateSettings) -> str:
    """Return why the store can't be used; "" if it can."""
    if state.backend == "sqlite":
        return _file_problem(Path(state.path))
    if state.backend != "redis" or state.redis_url is None:
        return ""
    from redis.asyncio import Redis
    from redis.exceptions import RedisError

    seconds: Any = {"socket_timeout": ASK_SECONDS, "socket_connect_timeout": ASK_SECONDS}
    client: Any = Redis.from_url(state.redis_url, **seconds)
    try:
        await client.ping()
    except (RedisError, OSError, TimeoutError) as error:
        return f"Redis at {_without_credentials(state.redis_url)}: {error}"
    finally:
        await client.aclose()
    return ""


def _file_problem(path: Path) -> str:
    """Return why SQLite's file can't be written. It isn't opened: a proxy may have it open."""
    path = path.expanduser().absolute()
    there = next(one for one in (path, *path.parents) if one.exists())
    if not os.access(there, os.W_OK) or (there != path and not there.is_dir()):
        return f"{path} can't be written: {there} allows no writing"
    if not path.is_file():
        return f"{path} is a folder" if there == path else ""
    with path.open("rb") as file:
        begins = file.read(len(_SQLITE))
    return "" if begins in (b"", _SQLITE) else f"{path} isn't an SQLite file; `serve` renames it"


def _direct_tiers(settings: Settings, names: frozenset[str] | None) -> list[str]:
    """Return the tiers that the cloud serves directly. ``names``: LiteLLM's models, if known."""
    if not may_enter_cloud(client_allows=True, settings=settings):
        return []
    return [
        name
        for name in settings.reliability.escalation.chain
        if not settings.tiers[name].local
        and (
            name == CLOUD_TIER
            or (names is not None and not is_listed(settings.tiers[name].model, names))
        )
    ]


def _cloud_lines(settings: Settings, direct: list[str]) -> Iterator[Line]:
    """Yield the lines about the direct way into the cloud, and about its key."""
    fallback = settings.reliability.escalation.cloud_fallback
    if fallback is None or not may_enter_cloud(client_allows=True, settings=settings):
        return
    has_key = cloud_key(fallback) is not None
    url = _without_credentials(fallback.url)
    for name in direct:
        if has_key:
            yield "ok", f"tier {name}: model {fallback.model!r}, asked directly at {url}"
        else:
            yield "FAIL", f"tier {name}: ${fallback.api_key_env} is not set, so it is never asked"
            yield NEXT, f"export {fallback.api_key_env}=… with {fallback.provider}'s key"
    if not direct and not has_key:
        only = "the cloud is asked through LiteLLM alone"
        yield "note", f"cloud_fallback: ${fallback.api_key_env} is not set; {only}"


async def _templates(
    settings: Settings, upstream: Upstream, listed: list[str]
) -> AsyncIterator[Line]:
    """Yield a line for each tier whose chat template shows a call in doubled braces."""
    groups = await details_of(upstream, upstream_key(settings)) if listed else {}
    for name in listed:
        if await shows_doubled_braces(groups, settings.tiers[name].model):
            yield "note", f"tier {name}: its chat template shows a call in doubled braces"
            yield NEXT, "give its server a template that shows calls in single ones"


def _say(line: Line) -> None:
    mark, text = line
    print("\n".join(wrapped(printable(text), _WIDTH, f"{mark:<4}  ", " " * 6)), flush=True)


async def _litellm(
    settings: Settings, upstream: Upstream
) -> tuple[frozenset[str] | None, list[Line]]:
    """Return LiteLLM's model names (None if it doesn't list them) and the lines about LiteLLM."""
    subject = f"LiteLLM at {_without_credentials(settings.upstream.base_url)}"
    variable = settings.upstream.api_key_env
    try:
        names = names_in(await list_models(upstream, upstream_key(settings), variable))
    except NoModels as error:
        findings: list[Line] = [("ok", f"{subject}: reachable")] if error.reached else []
        return None, [*findings, ("FAIL", f"{subject}: {error}"), (NEXT, error.next_step)]
    assert names is not None
    is_known = any(is_listed(tier.model, names) for tier in settings.tiers.values())
    if not is_known and not await is_litellm(upstream):
        why = f"it lists {_some(names)}, but is not LiteLLM; a model server?"
        return names, [("FAIL", f"{subject}: {why}"), (NEXT, RIGHT_ADDRESS)]
    lines: list[Line] = [("ok", f"{subject}: reachable, key right, {len(names)} models")]
    direct = _direct_tiers(settings, names)
    for name, tier in settings.tiers.items():
        if name in direct:
            continue
        is_known = is_listed(tier.model, names)
        state = "known to LiteLLM" if is_known else f"not among LiteLLM's: {_some(names)}"
        lines.append(
            ("ok" if is_known else "FAIL", f"tier {name}: model {tier.model!r} is {state}")
        )
        if not is_known:
            advice = f"set tiers.{name}.model to one that it has"
            lines.append((NEXT, f"{advice}, or add the model to LiteLLM's model_list"))
    return names, lines


async def _memory(url: str) -> Line:
    """Return the line about the machine whose memory pressure the proxy is to read."""
    subject = f"memory pressure at {_without_credentials(url)}"
    host = HostMemory(url)
    try:
        reading = await host.read()
    except (UpstreamError, TimeoutError, ValueError) as error:
        return "FAIL", f"{subject}: {str(error) or 'no answer in time'}"
    finally:
        await host.close()
    return "ok", f"{subject}: {Level(reading.level or 0).word}"


def _without_credentials(url: str) -> str:
    parts = urlsplit(url)
    return urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2]))


def _some(names: frozenset[str]) -> str:
    first = sorted(names)[:8]
    return ", ".join(first) + (", …" if len(names) > len(first) else "")
