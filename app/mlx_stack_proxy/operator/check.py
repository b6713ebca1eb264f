"""``mlx-stack-proxy check``: whether the configuration, LiteLLM, the tiers and another machine's
memory pressure can be used.

:class:`_Check` yields a :data:`Finding` for each, printed as a line and, if something is to be done
about it, a second one. The models are asked by ``prober.Probe``. With a running ``up`` the
command checks the configuration that ``up`` has written.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import dataclasses
import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from ..driver.services import upstream_key
from ..engine.model_list import ASK_SECONDS, names_in
from ..engine.upstream import UpstreamError
from ..escalation.cloud import Cloud, cloud_key
from ..escalation.tiers import is_listed, may_enter_cloud
from ..memory_pressure.pressure import Level
from ..memory_pressure.readers import HostMemory
from ..settings import CLOUD_TIER, Settings, StateSettings, is_loopback
from ..settings_source import SettingsError, Sources, read
from ..tool_validation.formats.json_calls import DOUBLED
from . import say, settings_shown, workers
from .init.model_groups import from_entries, host_of, mapping
from .local_stack import run_directory
from .prober import RIGHT_ADDRESS, LiteLLM, Mark, NoModels, Probe, chat_template

# A mark, the finding, and what to do about it ("": nothing).
Finding = tuple[Mark, str, str]
_ABOUT_TIERS = {  # what to do about a tier, by the mark of its line
    "ok": "",
    "FAIL": "read the logs of LiteLLM and the model server; is that server running?",
    "note": "nothing needs to be done; for a model without tools set tiers.{name}.tools: false",
}
# What to do about a configuration, by how its first problem begins.
_ABOUT_FILES = {
    "can't be read": "name the file with --config; `mlx-stack-proxy init` writes a first one",
    "is not valid YAML": "correct the file at this position",
    "": "docs/settings.md lists every key; editors can use `mlx-stack-proxy config schema`",
}
_SQLITE = b"SQLite format 3\0"  # with which its files begin
_MOST_NAMES = 8  # of LiteLLM's models, in a sentence


def add_check(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Check the configuration, LiteLLM and its models, then ask each tier of this machine for a "
        "token, a stream and a tool call. Exit code: 1 if a line says FAIL, else 0."
    )
    add = parser.add_mutually_exclusive_group().add_argument
    text = "only list every setting and its origin"
    add("--settings", action="store_true", help=text)
    add("--no-probe", action="store_true", help="call no model")
    add("--cloud", action="store_true", help="call cloud tiers too")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Print the findings; return the exit code: 0, or 1 if a line says FAIL."""
    try:
        settings, sources = _settings_of_up(read(args.config))
        run_directory.take_key(os.environ, settings.upstream.base_url)
    except SettingsError as error:
        first = error.problems[0]
        step = next(step for start, step in _ABOUT_FILES.items() if first.startswith(start))
        for problem in error.problems:
            _say("FAIL", f"{error.source}: {problem}")
        _say("→", step)
        return 1
    if args.settings:
        for line in settings_shown.lines(settings, sources):
            print(line)
        return 0
    _say("ok", f"configuration: {sources.path or 'no file, the defaults'}")
    for key in sources.retired():
        _say("note", f"{key}: has no effect any more; remove it")
    return asyncio.run(_run(settings, probe=not args.no_probe, cloud=args.cloud))


def _settings_of_up(sources: Sources) -> tuple[Settings, Sources]:
    """Return the settings of the ``up`` that listens on the proxy's port, if one does.

    A configuration file of the user's own takes precedence over the one of ``up``. Raises
    ``SettingsError`` if ``serve`` would refuse it.
    """
    settings = sources.settings()
    folder = run_directory.running_at(settings.server.url)
    config_file = None if folder is None else folder / run_directory.PROXY_CONFIG
    if config_file is None or (sources.path and sources.path.resolve() != config_file):
        workers.check_servable(settings)
        return settings, sources
    sources = read(str(config_file))
    settings = sources.settings()
    if "upstream" not in sources.file:  # `up --inside`: LiteLLM itself listens on the proxy's port
        upstream = dataclasses.replace(settings.upstream, base_url=settings.server.url)
        settings = dataclasses.replace(settings, upstream=upstream)
    return settings, sources


async def _run(settings: Settings, *, probe: bool, cloud: bool) -> int:
    """Print what :class:`_Check` finds, as it comes; return the exit code."""
    failed = False
    check = _Check(settings, probe, cloud)
    async with contextlib.aclosing(check.litellm):
        for part in (
            *(check.models, check.way_into_the_cloud, check.health_urls, check.tiers),
            *(check.templates, check.state, check.memory),
        ):
            async for finding in part():
                _say(*finding)
                failed = failed or finding[0] == "FAIL"
    return 1 if failed else 0


class _Check:
    """Yields the findings about a configuration, part by part.

    ``probe``: whether models are asked; ``cloud``: whether that includes tiers that aren't local.
    """

    def __init__(self, settings: Settings, probe: bool, cloud: bool) -> None:
        self._settings, self._probe, self._cloud = settings, probe, cloud
        variable = settings.upstream.api_key_env
        self.litellm = LiteLLM(settings.upstream, upstream_key(settings), variable)
        self._listed: set[str] = set()  # the tiers whose models LiteLLM has
        self._direct: list[str] = []  # the tiers that the cloud serves directly
        enters_cloud = may_enter_cloud(client_allows=True, settings=settings)
        self._fallback = settings.reliability.escalation.cloud_fallback if enters_cloud else None
        self._has_key = self._fallback is not None and cloud_key(self._fallback) is not None

    async def models(self) -> AsyncIterator[Finding]:
        """Yield whether LiteLLM answers, and has the tiers' models."""
        settings, tiers = self._settings, self._settings.tiers
        subject = f"LiteLLM at {settings.upstream.base_url}"
        chain = settings.reliability.escalation.chain
        away = [name for name in chain if not tiers[name].local] if self._fallback else []
        self._direct = [name for name in away if name == CLOUD_TIER]
        try:
            names = names_in(await self.litellm.models()) or frozenset()
        except NoModels as error:
            if error.reached:
                yield "ok", f"{subject}: reachable", ""
            yield "FAIL", f"{subject}: {error}", error.next_step
            return
        self._listed = {name for name, tier in tiers.items() if is_listed(tier.model, names)}
        self._direct = [n for n in away if n == CLOUD_TIER or n not in self._listed]
        has = ", ".join(sorted(names)[:_MOST_NAMES]) + ", …" * (len(names) > _MOST_NAMES)
        if not self._listed and not await self.litellm.is_litellm():
            why = f"it lists {has}, but is not LiteLLM; a model server?"
            yield "FAIL", f"{subject}: {why}", RIGHT_ADDRESS
            return
        yield "ok", f"{subject}: reachable, key accepted, {len(names)} models", ""
        for name in tiers:
            text = f"tier {name}: model {tiers[name].model!r} is"
            if name in self._listed and name not in self._direct:
                yield "ok", f"{text} known to LiteLLM", ""
            elif name not in self._direct:
                advice = f"set tiers.{name}.model to one of these, or add the model to LiteLLM's"
                yield "FAIL", f"{text} not among LiteLLM's: {has}", f"{advice} model_list"

    async def way_into_the_cloud(self) -> AsyncIterator[Finding]:
        """Yield what is to be said of the direct way into the cloud, and of its key."""
        fallback = self._fallback
        if fallback is None:
            return
        variable = f"${fallback.api_key_env}"
        for name in self._direct:
            if self._has_key:
                where = f"model {fallback.model!r}, called directly at {fallback.url}"
                yield "ok", f"tier {name}: {where}", ""
            else:
                step = f"export {fallback.api_key_env}=… with {fallback.provider}'s key"
                yield "FAIL", f"tier {name}: {variable} is not set, so it is never called", step
        if not self._direct and not self._has_key:
            only = "the cloud is called only through LiteLLM"
            yield "note", f"cloud_fallback: {variable} is not set; {only}", ""

    async def health_urls(self) -> AsyncIterator[Finding]:
        """Yield a failure for each tier at whose ``health_url`` nothing listens."""
        health = self.litellm.upstream.health
        for name, tier in self._settings.tiers.items():
            if (url := tier.health_url) and await health(url, ASK_SECONDS) == "gone":
                step = f"start its model server, or correct tiers.{name}.health_url"
                yield "FAIL", f"tier {name}: nothing listens at its health_url, {url}", step

    async def tiers(self) -> AsyncIterator[Finding]:
        """Ask the tiers' models; yield what each can do."""
        direct = Cloud(self._fallback) if self._fallback is not None and self._direct else None
        try:
            for name, tier in self._settings.tiers.items() if self._probe else ():
                cloud = direct if name in self._direct else None
                if not (tier.local or self._cloud) and name in self._listed.union(self._direct):
                    text = f"tier {name}: not on this machine, so not called; --cloud calls it"
                    yield "note", text, ""
                # Of others a line has said why not.
                elif self._has_key if cloud else name in self._listed:
                    probe = Probe(self._settings, self.litellm.upstream, cloud)
                    async for mark, text in probe.tier(name):
                        yield mark, f"tier {name}: {text}", _ABOUT_TIERS[mark].format(name=name)
        finally:
            if direct is not None:
                await direct.upstream.aclose()

    async def templates(self) -> AsyncIterator[Finding]:
        """Yield a note for each tier whose server's template shows a call in doubled braces."""
        listed = self._listed if self._probe else set()
        groups = from_entries(mapping(await self.litellm.details()).get("data")) if listed else {}
        for name, tier in self._settings.tiers.items():
            group = groups.get(tier.model) if name in listed else None
            bases = [one.api_base or "" for one in (group.deployments if group else ())]
            here = [base for base in bases if is_loopback(host_of(base))]
            if any([DOUBLED.search(await chat_template(base)) for base in here]):
                text = f"tier {name}: its chat template shows calls in doubled braces"
                yield "note", text, "give its server a template with single braces"

    async def state(self) -> AsyncIterator[Finding]:
        if problem := await _store_problem(self._settings.state):
            step = "otherwise budgets and loops are lost at a restart; correct `state`"
            yield "FAIL", f"state: {problem}", step

    async def memory(self) -> AsyncIterator[Finding]:
        rules = self._settings.reliability.memory_pressure
        if not rules.enabled or not rules.source.startswith("http"):
            return
        subject = f"memory pressure at {rules.source}"
        host = HostMemory(rules.source)
        try:
            reading = await host.read()
            yield "ok", f"{subject}: {Level(reading.level or 0).word}", ""
        except (UpstreamError, TimeoutError, ValueError) as error:
            step = "run `mlx-stack-proxy pressure --serve` on that machine"
            yield "FAIL", f"{subject}: {str(error) or 'no answer in time'}", step
        finally:
            await host.close()


async def _store_problem(state: StateSettings) -> str:
    """Return why the store can't be used; "" if it can."""
    if state.backend == "sqlite":
        return _file_problem(state.path)
    if state.backend != "redis" or state.redis_url is None:
        return ""
    from redis.asyncio import Redis
    from redis.exceptions import RedisError

    seconds: Any = {"socket_timeout": ASK_SECONDS, "socket_connect_timeout": ASK_SECONDS}
    client: Any = Redis.from_url(state.redis_url, **seconds)
    try:
        await client.ping()
    except (RedisError, OSError, TimeoutError) as error:
        return f"Redis at {state.redis_url}: {error}"
    finally:
        await client.aclose()
    return ""


def _file_problem(name: str) -> str:
    """Return why SQLite's file can't be written. It isn't opened: a proxy may have it open."""
    path = Path(name).expanduser().absolute()
    there = next(one for one in (path, *path.parents) if one.exists())
    if not os.access(there, os.W_OK) or (there != path and not there.is_dir()):
        because = f"can't be written: {there} " if there != path else ""
        return f"{path} {because}is not writable"
    if not path.is_file():
        return f"{path} is a folder" if there == path else ""
    with path.open("rb") as file:
        begins = file.read(len(_SQLITE))
    return "" if begins in (b"", _SQLITE) else f"{path} isn't an SQLite file; `serve` renames it"


def _say(mark: str, text: str, step: str = "") -> None:
    say(text, f"{mark:<4}  ", " " * 6)
    if step:
        _say("→", step)
