"""Readers of the memory's state: on macOS, on Linux, or from another machine over HTTP.

Each reader returns a :class:`Reading` of raw figures, which ``pressure.py`` turns into a level.
Blocking readers run in a thread of their own (:class:`Threaded`).
"""

from __future__ import annotations

import asyncio
import ctypes
import re
import struct
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

import orjson
import psutil

from ..daemon_threads import Worker
from ..engine.upstream import Upstream
from ..settings import UpstreamSettings
from .pressure import LEVELS, Level, Reading

LEVEL_NAME = "kern.memorystatus_vm_pressure_level"
SWAP_NAME = "vm.swapusage"
HOST_SECONDS = 3.0  # for another machine's whole answer
MAX_HOST_BODY = 64 * 1024  # bytes


class MemoryReader(Protocol):
    """A source of readings for the probe."""

    name: str  # a description of its figures

    async def read(self) -> Reading:
        """Read once. A reader may raise anything and may hang; the probe handles both."""

    async def close(self) -> None: ...


class Blocking(Protocol):
    """A source whose ``read`` blocks."""

    name: str

    def read(self) -> Reading: ...


def open_reader(source: str) -> MemoryReader | None:
    """Return the reader of a configured ``source``; None if there is nothing to read."""
    if source == "off":
        return None
    if source != "auto":
        return HostMemory(source)
    blocking = this_machine()
    return Threaded(blocking) if blocking is not None else None


def this_machine() -> Blocking | None:
    if sys.platform == "darwin":
        return MacMemory.find()
    return LinuxMemory.find() if sys.platform == "linux" else None


class Threaded:
    """Runs a blocking reader in a thread of its own, so that a hanging read delays nothing else."""

    def __init__(self, blocking: Blocking) -> None:
        self.name = blocking.name
        self._blocking = blocking
        self._worker: Worker | None = None  # started by the first reading

    async def read(self) -> Reading:
        if self._worker is None:
            self._worker = Worker("memory-probe")
        return await self._worker.do(self._blocking.read)

    async def close(self) -> None:
        if self._worker is not None:
            self._worker.shutdown()


# macOS


class MacMemory:
    """Reads the kernel's pressure level and the used swap with ``sysctlbyname``.

    ``library``: a C library with that function. Raises ``AttributeError`` if it has none.
    """

    name = "macOS pressure level, swap"

    def __init__(self, library: Any) -> None:
        self._call = library.sysctlbyname

    @classmethod
    def find(cls) -> MacMemory | None:
        """Return a reader, or None if the kernel has no pressure level."""
        try:
            reader = cls(ctypes.CDLL(None, use_errno=True))
        except (OSError, AttributeError):
            return None
        return reader if reader._value(LEVEL_NAME) else None

    def read(self) -> Reading:
        number, swap = self._value(LEVEL_NAME), self._value(SWAP_NAME)
        if not number and not swap:
            raise OSError("sysctl reports neither a pressure level nor swap usage")
        level = None
        if number:  # 1 is normal, 2 warning, 4 critical
            level = Level(min(int.from_bytes(number[:4], sys.byteorder) // 2, Level.CRITICAL))
        # struct xsw_usage: total, available, used (bytes); page size, whether it is encrypted
        return Reading(level, swap={"used": struct.unpack_from("=QQQ", swap)[2]} if swap else {})

    def _value(self, name: str) -> bytes:
        """Return a kernel value; b"" if there is none of this name."""
        size = ctypes.c_size_t(256)
        buffer = ctypes.create_string_buffer(size.value)
        if self._call(name.encode(), buffer, ctypes.byref(size), None, ctypes.c_size_t(0)):
            return b""
        return buffer.raw[: size.value]


# Linux

_STALLS = re.compile(r"^(some|full) avg10=(\d+(?:\.\d+)?)", re.MULTILINE)


class LinuxMemory:
    """Reads PSI of the machine and of our cgroup, the limits of cgroups (v2), and the swap.

    Only files that exist at the start are read later. ``proc`` and ``cgroups``: where the file
    systems are mounted. ``swap``: ``psutil.swap_memory``.
    """

    def __init__(
        self,
        proc: Path = Path("/proc"),
        cgroups: Path = Path("/sys/fs/cgroup"),
        swap: Callable[[], Any] = psutil.swap_memory,
    ) -> None:
        own = _own_cgroups(proc, cgroups)
        psi = [proc / "pressure" / "memory", *(folder / "memory.pressure" for folder in own[:1])]
        self._psi_files = [path for path in psi if _text(path)]
        self._limited_cgroups = [folder for folder in own if _number(folder / "memory.max")]
        self._swap = swap if swap().total else None
        found = (self._psi_files, self._limited_cgroups, self._swap)
        words = zip(("PSI", "cgroup limit", "swap"), found, strict=True)
        self.name = ", ".join(word for word, available in words if available)

    @classmethod
    def find(cls) -> LinuxMemory | None:
        reader = cls()
        return reader if reader.name else None

    def read(self) -> Reading:
        stalls: dict[str, float] = {}
        for path in self._psi_files:
            for kind, percent in _STALLS.findall(_text(path)):
                stalls[kind] = max(float(percent), stalls.get(kind, 0.0))
        shares = [share for one in self._limited_cgroups if (share := _share(one)) is not None]
        counters = {}
        if self._swap is not None:
            usage = self._swap()
            counters = {"used": usage.used, "out": usage.sout}
        for folder in self._limited_cgroups[:1]:
            if (used := _number(folder / "memory.swap.current")) is not None:
                counters["cgroup"] = used
        return Reading(
            some=stalls.get("some"),
            full=stalls.get("full"),
            limit_used=max(shares, default=None),
            swap=counters,
        )


def _own_cgroups(proc: Path, root: Path) -> list[Path]:
    """Return our cgroup (v2) and its parents, whose limits apply to it, too; innermost first."""
    for line in _text(proc / "self" / "cgroup").splitlines():
        if line.startswith("0::"):
            cgroup = root / line[3:].strip("/")
            return [folder for folder in (cgroup, *cgroup.parents) if folder.is_relative_to(root)]
    return []


def _share(folder: Path) -> float | None:
    """Return the share of a cgroup's limit in use that the kernel can't free; None if unknown.

    The file cache can be freed, so it doesn't count: a model's file may fill it up to the limit
    without harm.
    """
    limit, used = _number(folder / "memory.max"), _number(folder / "memory.current")
    if not limit or used is None:
        return None
    stat = map(str.split, _text(folder / "memory.stat").splitlines())
    cached = sum(int(value) for name, value in stat if name in ("active_file", "inactive_file"))
    return max(0, used - cached) / limit


def _number(path: Path) -> int | None:
    """Return the number in a file; None if there is no file or no number, such as ``max``."""
    text = _text(path).strip()
    return int(text) if text.isdigit() else None


def _text(path: Path) -> str:
    """Return a file's text; "" if it can't be read."""
    try:
        return path.read_text(encoding="ascii")
    except (OSError, ValueError):
        return ""


# Another machine


class HostMemory:
    """Queries ``mlx-stack-proxy pressure --serve`` on the machine that runs a container."""

    def __init__(self, url: str) -> None:
        self.name = "host"  # without the address, because anyone may see the name
        self._upstream = Upstream(UpstreamSettings(base_url=url))

    async def read(self) -> Reading:
        async with asyncio.timeout(HOST_SECONDS):
            response = await self._upstream.send("GET", "", [(b"accept", b"application/json")])
            try:
                body = await response.read(MAX_HOST_BODY)
            finally:
                await response.aclose()
        if response.status != 200:
            raise ValueError(f"status {response.status}")
        return host_reading(body)

    async def close(self) -> None:
        await self._upstream.aclose()


def host_reading(body: bytes) -> Reading:
    """Return the reading in a host's answer, ``{"level": "warning", …}``.

    Raises ``ValueError`` if it names no known level.
    """
    answer = orjson.loads(body)
    level = answer.get("level") if isinstance(answer, dict) else None
    if not isinstance(level, str) or level not in LEVELS:
        raise ValueError(f"no level of {', '.join(LEVELS)}")
    return Reading(level=LEVELS[level])
