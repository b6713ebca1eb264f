"""Reloads the settings of a running proxy: at SIGHUP, or when its configuration file has changed.

:class:`Reloader` looks at the file's time, size and inode every ``POLL_SECONDS``. It reads a
changed file only after two looks that found the same, so that it doesn't read a half-written file.
Looks and readings are made in threads, and given up after ``READ_SECONDS``: a network mount may
hang. While one hangs, only SIGHUP makes another.
All keys take effect but those of :data:`AT_START`, which keep their old values until a restart. A
file that can't be used changes nothing; the log and an event say why.
"""

from __future__ import annotations

import asyncio
import contextlib
import stat
from collections.abc import Callable, Collection, Iterator
from concurrent.futures import Future
from dataclasses import replace
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

from msgspec import Struct, structs

from . import log, settings_source, tasks
from .daemon_threads import DaemonThreads
from .setting_types import keys_of
from .settings import Settings
from .settings_source import SettingsError, Sources

POLL_SECONDS = 2.0
READ_SECONDS = 10.0
MAX_HANGING = 8  # threads that hang in a file system

# Keys that are used only at the start (sockets, connections, stores, the memory probe): a change
# needs a restart. A path names a key, or a section with all its keys.
AT_START: frozenset[tuple[str, ...]] = frozenset(
    {
        ("server",),
        ("upstream", "base_url"),
        ("upstream", "api_key_env"),
        ("reliability", "loop_detection", "max_sessions"),
        ("reliability", "loop_detection", "max_tracked_threads"),
        ("reliability", "token_budget", "session_ttl_seconds"),
        ("reliability", "memory_pressure", "enabled"),
        ("reliability", "memory_pressure", "source"),
        ("reliability", "memory_pressure", "interval_seconds"),
        ("reliability", "memory_pressure", "thresholds"),
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

Signature = tuple[int, int, int] | None  # a file's modification time (ns), size and inode
_P = ParamSpec("_P")
_T = TypeVar("_T")
Change = Callable[[Settings], None]
Notify = Callable[[str, dict[str, list[str]]], None]  # an event's kind and detail


class SettingsOrigin(Struct, frozen=True):
    """The sources of the process's settings, to read them again."""

    path: Path | None  # None: no file was found at the start
    host: str | None = None  # --host, which overrides the file
    port: int | None = None  # --port, the same

    def read(self) -> Settings:
        """Read the settings now. Raises :class:`SettingsError`."""
        return self._whole(self._sources())

    def retired(self) -> list[str]:
        """Return the set keys that no longer have an effect. Raises :class:`SettingsError`."""
        return self._sources().retired()

    def read_anew(self, old: Settings) -> Settings:
        """Read the settings that are to replace ``old``. Raises :class:`SettingsError`.

        A file that gives no setting at all is refused too: a full disk leaves such files. So is a
        pipe or the like: its reader waits until somebody writes.
        """
        if self.path is not None and self.path.exists() and not self.path.is_file():
            raise SettingsError(["is not a regular file"], str(self.path))
        sources = self._sources()
        new = self._whole(sources)
        if sources.path is not None and not sources.file and new != old:
            problem = "gives no setting at all; if that is intended, restart"
            raise SettingsError([problem], str(sources.path))
        return new

    def _sources(self) -> Sources:
        options = {k: v for k, v in (("host", self.host), ("port", self.port)) if v is not None}
        sources = settings_source.read(None if self.path is None else str(self.path))
        return structs.replace(sources, command_line={"server": options} if options else {})

    def _whole(self, sources: Sources) -> Settings:
        """Return the sources' settings; ``litellm/settings_origin.py`` changes some of them."""
        return sources.settings()


class Reloader:
    """Watches the configuration file and applies what has changed.

    ``settings`` are those in force now. ``change`` is called with the new ones when a key that may
    change while the proxy runs has another value. ``tell`` is called after each reading:
    ``config_reloaded`` with ``keys`` and ``restart``, or ``config_refused`` with ``problems``.
    """

    def __init__(
        self,
        origin: SettingsOrigin,
        settings: Settings,
        change: Change,
        tell: Notify = lambda kind, detail: None,
    ) -> None:
        self._origin = origin
        self._settings = settings
        self._change = change
        self._notify = tell
        self._reload_asked = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._threads = DaemonThreads(MAX_HANGING)
        self._job: Future[Any] | None = None  # the latest look or reading
        self._restart_keys: list[str] = []  # changed keys that wait for a restart, already logged
        # The next reading is logged even if it changes nothing: SIGHUP asked for it, or the file
        # was refused the last time.
        self._log_next = False

    def start(self) -> None:
        """Start watching, as a task of the running event loop."""
        self._task = asyncio.create_task(self._run())

    def ask(self) -> None:
        """Read the settings again soon, whether or not the file has changed."""
        self._log_next = True
        self._reload_asked.set()

    async def close(self) -> None:
        await tasks.end(self._task)

    async def _run(self) -> None:
        loaded: Signature = None
        previous: Signature = None
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(POLL_SECONDS):
                    await self._reload_asked.wait()
            is_asked = self._reload_asked.is_set()
            self._reload_asked.clear()
            if self._job is not None and self._job.running() and not is_asked:
                continue
            try:
                current = await self._in_thread(_signature, self._origin.path)
            except SettingsError as error:
                self._refuse(error)
                continue
            if is_asked or (current is not None and current == previous and current != loaded):
                await self.reload()
                loaded = current
            previous = current

    async def reload(self) -> bool:
        """Read and apply the settings; return whether that succeeded. Raises nothing."""
        try:
            self._apply(await self._in_thread(self._origin.read_anew, self._settings))
        except SettingsError as error:
            self._refuse(error)
            return False
        except Exception as error:
            log.fault("settings_fault", error)
            return False
        return True

    async def _in_thread(self, function: Callable[_P, _T], *args: _P.args, **kw: _P.kwargs) -> _T:
        """Call a function that reads files. Raises ``SettingsError`` if it hangs."""
        job = self._job = self._threads.submit(function, *args, **kw)
        try:
            async with asyncio.timeout(READ_SECONDS):
                return await asyncio.wrap_future(job)
        except TimeoutError:
            problem = f"can't be read: no answer within {READ_SECONDS:g} s"
            raise SettingsError([problem], str(self._origin.path)) from None

    def _refuse(self, error: SettingsError) -> None:
        self._log_next = True
        problems = list(error.problems)
        log.get().error("settings_refused", source=error.source, problems=problems, kept="the old")
        self._notify("config_refused", {"problems": [f"{error.source}: {one}" for one in problems]})

    def _apply(self, settings: Settings) -> None:
        new = with_old(settings, self._settings, AT_START)
        changed = list(differences(self._settings, new))
        waiting = list(differences(new, settings))
        if changed:
            self._change(new)
            self._settings = new
            log.get().info("settings_changed", keys=changed)
        if waiting and (self._log_next or waiting != self._restart_keys):
            log.get().warning("settings_need_restart", keys=waiting)
        elif self._log_next and not changed:
            log.get().info("settings_unchanged")
        self._notify("config_reloaded", {"keys": changed, "restart": waiting})
        self._restart_keys = waiting
        self._log_next = False


def _signature(path: Path | None) -> Signature:
    """Return numbers that differ once the file has changed; None while there is no file."""
    try:
        found = path.stat() if path is not None else None
    except OSError:
        return None
    if found is None or not stat.S_ISREG(found.st_mode):
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino


def with_old(new: _T, old: _T, paths: Collection[tuple[str, ...]]) -> _T:
    """Return a copy of ``new`` (settings or a section) with the values of ``old`` at ``paths``."""
    values: dict[str, Any] = {}
    for name in {path[0] for path in paths}:
        subpaths = {path[1:] for path in paths if path[0] == name}
        new_value, old_value = getattr(new, name), getattr(old, name)
        values[name] = old_value if () in subpaths else with_old(new_value, old_value, subpaths)
    return replace(new, **values)  # type: ignore[type-var]


def differences(old: Any, new: Any, path: str = "") -> Iterator[str]:
    """Yield the dotted path of each key that differs, without values, because some are secrets."""
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
