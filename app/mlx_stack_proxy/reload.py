"""Other settings for a proxy that runs: at SIGHUP, or when its file has changed.

The file is looked at every few seconds, and read when it has stayed the same for two looks, so that
one that is still being written isn't taken for whole. A file that can't be used changes nothing.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Collection, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

from . import settings_source, tasks
from .frozen import frozen
from .section import keys_of
from .settings import Settings
from .settings_source import SettingsError, Sources
from .telemetry import log

POLL_SECONDS = 2.0

# What is wired at the start: listening sockets, connections, stores, what watches the machine.
AT_START: frozenset[tuple[str, ...]] = frozenset(
    {
        ("server",),
        ("upstream", "base_url"),
        ("upstream", "api_key_env"),
        ("upstream", "max_connections"),
        ("reliability", "loop_detection", "max_sessions"),
        ("reliability", "token_budget", "session_ttl_seconds"),
        ("reliability", "memory_pressure", "enabled"),
        ("reliability", "memory_pressure", "source"),
        ("reliability", "memory_pressure", "interval_seconds"),
        ("reliability", "memory_pressure", "thresholds"),
        ("reliability", "memory_pressure", "hold_seconds"),
        ("reliability", "memory_pressure", "sustained_seconds"),
        ("state",),
        ("observability", "events_retention_days"),
        ("observability", "events_max"),
        ("observability", "capture_failures"),
        ("observability", "capture_path"),
        ("observability", "capture_max_bytes"),
        ("observability", "traces"),
        ("observability", "notify"),
    }
)

Signature = tuple[int, int, int] | None
_T = TypeVar("_T")
Change = Callable[[Settings], None]
Tell = Callable[[str, dict[str, list[str]]], None]


@frozen
class Given:
    """How the settings were asked for. ``path``: the file, None where there is none."""

    path: Path | None
    host: str | None = None
    port: int | None = None

    def read(self) -> Settings:
        """The settings as they are given now. Raises :class:`SettingsError`."""
        return self._whole(self._sources())

    def retired(self) -> list[str]:
        """The keys among them that do nothing any more. Raises :class:`SettingsError`."""
        return self._sources().retired()

    def read_anew(self, old: Settings) -> Settings:
        """The same, in place of ``old``. A file in which nothing stands any more does not mean it:
        so one looks that a full disk has cut."""
        sources = self._sources()
        found = self._whole(sources)
        if sources.path is not None and not sources.file and found != old:
            problem = "gives no setting at all; if it is meant to, restart"
            raise SettingsError([problem], str(sources.path))
        return found

    def _sources(self) -> Sources:
        return settings_source.read(None if self.path is None else str(self.path))

    def _whole(self, sources: Sources) -> Settings:
        return settings_source.with_address(sources.settings(), self.host, self.port)


class Reloader:
    """``settings``: those in force. ``change``: lets what begins from now on work with others.

    ``tell``: is told how each reading went, as an event's kind and detail.
    """

    def __init__(
        self, given: Given, settings: Settings, change: Change, tell: Tell = lambda kind, said: None
    ) -> None:
        self._given = given
        self._settings = settings
        self._change = change
        self._tell = tell
        self._asked = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._waiting: list[str] = []  # what needs a restart, and has been said to
        self._awaited = False  # somebody looks for a word of it, though nothing may have changed

    def start(self) -> None:
        """Begin to look, in the running event loop."""
        self._task = asyncio.create_task(self._run())

    def ask(self) -> None:
        """Read the settings anew, whether or not the file has changed."""
        self._awaited = True
        self._asked.set()

    async def close(self) -> None:
        await tasks.end(self._task)

    async def _run(self) -> None:
        read: Signature = None
        before: Signature = None
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(POLL_SECONDS):
                    await self._asked.wait()
            now = _signature(self._given.path)
            if self._asked.is_set() or (now is not None and now == before and now != read):
                self._asked.clear()
                await self.reload()
                read = now
            before = now

    async def reload(self) -> bool:
        """Whether the settings that are given now could be used. Raises nothing."""
        try:
            found = await asyncio.to_thread(self._given.read_anew, self._settings)
            self._apply(found)
        except SettingsError as error:
            self._awaited = True
            log.get().error(
                "settings_refused", source=error.source, problems=error.problems, kept="the old"
            )
            self._tell("config_refused", {"problems": list(error.problems)})
            return False
        except Exception as error:
            log.fault("settings_fault", error)
            return False
        return True

    def _apply(self, found: Settings) -> None:
        new = with_old(found, self._settings, AT_START)
        changed = list(differences(self._settings, new))
        waiting = list(differences(new, found))
        if changed:
            self._change(new)
            self._settings = new
            log.get().info("settings_changed", keys=changed)
        if waiting and (self._awaited or waiting != self._waiting):
            log.get().warning("settings_need_restart", keys=waiting)
        elif self._awaited and not changed:
            log.get().info("settings_unchanged")
        self._tell("config_reloaded", {"keys": changed, "restart": waiting})
        self._waiting = waiting
        self._awaited = False


def _signature(path: Path | None) -> Signature:
    """What changes when the file does; None while there is none."""
    try:
        found = path.stat() if path is not None else None
    except OSError:
        return None
    return None if found is None else (found.st_mtime_ns, found.st_size, found.st_ino)


def with_old(new: _T, old: _T, paths: Collection[tuple[str, ...]]) -> _T:
    """The new settings or section, with the old values at ``paths``."""
    kept: dict[str, Any] = {}
    for name in {path[0] for path in paths}:
        below = {path[1:] for path in paths if path[0] == name}
        ours, theirs = getattr(new, name), getattr(old, name)
        kept[name] = theirs if () in below else with_old(ours, theirs, below)
    return replace(new, **kept)  # type: ignore[type-var]


def differences(old: Any, new: Any, path: str = "") -> Iterator[str]:
    """The keys whose values differ, by their paths. No values: there may be secrets among them."""
    if old == new:
        return
    if type(old) is type(new) and (keys := keys_of(type(old))):
        for name in keys:
            yield from differences(
                getattr(old, name), getattr(new, name), f"{path}.{name}" if path else name
            )
    elif path == "tiers":
        for name in [*old, *(name for name in new if name not in old)]:
            yield from differences(old.get(name), new.get(name), f"tiers.{name}")
    else:
        yield path
