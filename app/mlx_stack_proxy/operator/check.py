"""``mlx-stack-proxy check``: whether the configuration, LiteLLM, the tiers and another machine's
memory pressure can be used.

Each finding is a line with a mark (:data:`Line`); a line that needs action is followed by one
marked :data:`NEXT`. The models are asked by ``litellm_probe.Probe``. Beside a running ``up`` the
command checks the configuration that ``up`` has written.
"""

from __future__ import annotations

import argparse
import asyncio
import dataclasses
import os
from collections.abc import AsyncIterator
from typing import Final, Literal
from urllib.parse import urlsplit, urlunsplit

from ..engine.model_list import names_in
from ..engine.services import upstream_key
from ..engine.upstream import Upstream, UpstreamError
from ..escalation.tiers import is_listed
from ..local_address import local_url
from ..memory_pressure.pressure import Level
from ..memory_pressure.readers import HostMemory
from ..printable import printable, wrapped
from ..server import workers
from ..settings import Settings
from ..settings_source import SettingsError, Sources, read
from . import settings_shown
from .litellm_probe import RIGHT_ADDRESS, Mark, NoModels, Probe, is_litellm, list_models
from .local_stack import run_directory

NEXT: Final = "→"  # the mark of a line that says what to do about the line before
Line = tuple[Mark | Literal["→"], str]
_ABOUT_TIERS = {  # what to do about a tier, by the mark of its line
    "FAIL": "read LiteLLM's log and the model server's; is that server running?",
    "note": "it can be used as it is; for a model without tools set tiers.{name}.tools: false",
}
_WIDTH = 80


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Check the configuration, LiteLLM and its models; then ask each tier of this machine for a "
        "token, a stream and a tool call. Exit code: 0 all is well, 1 a line says FAIL."
    )
    mode = parser.add_mutually_exclusive_group()
    mode.add_argument(
        "--settings", action="store_true", help="only print every setting and where it comes from"
    )
    mode.add_argument("--no-probe", action="store_true", help="ask no model anything")
    mode.add_argument("--cloud", action="store_true", help="ask the tiers in the cloud, too")
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
    return asyncio.run(_run(settings, probe=probe, cloud=cloud))


def _read(config: str | None) -> tuple[Settings, Sources] | None:
    """Return the settings and their sources; None after printing why they can't be used."""
    try:
        settings, sources = _beside_up(read(config))
        run_directory.take_key(os.environ, settings.upstream.base_url)
        workers.check_state(settings)
        return settings, sources
    except SettingsError as error:
        for problem in error.problems:
            _say(("FAIL", f"{error.source}: {problem}"))
        _say((NEXT, "docs/settings.md has every key; `mlx-stack-proxy config schema` for editors"))
        return None


def _beside_up(sources: Sources) -> tuple[Settings, Sources]:
    """Return the settings of the ``up`` that listens on the proxy's port, if one does.

    A configuration file of the user's own takes precedence over the one of ``up``.
    """
    settings = sources.settings()
    folder = run_directory.running_at(local_url(settings))
    config_file = None if folder is None else folder / run_directory.PROXY_CONFIG
    if config_file is None or (sources.path and sources.path.resolve() != config_file):
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
        tier_probe = Probe(settings, upstream)
        listed = [n for n, tier in settings.tiers.items() if is_listed(tier.model, names or ())]
        for name in listed if probe else ():
            if settings.tiers[name].local or cloud:
                async for mark, text in tier_probe.tier(name):
                    yield mark, f"tier {name}: {text}"
                    if mark in _ABOUT_TIERS:
                        yield NEXT, _ABOUT_TIERS[mark].format(name=name)
            else:
                yield "note", f"tier {name}: not on this machine, and not asked; --cloud does"
    finally:
        await upstream.aclose()
    rules = settings.reliability.memory_pressure
    if rules.enabled and rules.source.startswith("http"):
        line = await _memory(rules.source)
        yield line
        if line[0] == "FAIL":
            yield NEXT, "run `mlx-stack-proxy pressure --serve` on that machine"


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
        why = f"it lists {_some(names)}, but is no LiteLLM; a model server?"
        return names, [("FAIL", f"{subject}: {why}"), (NEXT, RIGHT_ADDRESS)]
    lines: list[Line] = [("ok", f"{subject}: reachable, key right, {len(names)} models")]
    for name, tier in settings.tiers.items():
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
