"""macOS's memory, from samples: by the library, and by the command."""

from __future__ import annotations

import ctypes
import shutil
import struct
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from mlx_stack_proxy.memory_pressure.pressure import Level, Reading
from mlx_stack_proxy.memory_pressure.readers import (
    LEVEL_NAMES,
    MacMemory,
    SysctlCommand,
    SysctlLibrary,
)

MIB = 1024 * 1024
KERNEL, OLDER = LEVEL_NAMES

# `sysctl -n vm.swapusage` as an arm64 Mac prints it, and the same as the `struct xsw_usage`
# of xnu's sys/sysctl.h that `sysctlbyname` fills: three 64-bit counts of bytes (total, available,
# used), then the page size and whether it is encrypted.
SWAPUSAGE = bytes.fromhex(
    "0000000001000000"  # total = 4096.00M
    "0000a42900000000"  # free = 666.25M: available
    "00005cd600000000"  # used = 3429.75M
    "0040000001000000"
)
SAID = "total = 4096.00M  used = 3429.75M  free = 666.25M  (encrypted)"
USED = 3_596_353_536


class Library:
    """A C library with `sysctlbyname` and these values."""

    def __init__(self, values: Mapping[str, bytes]) -> None:
        self._values = values

    def sysctlbyname(self, name: bytes, buffer: Any, size: Any, new: None, new_size: Any) -> int:
        value = self._values.get(name.decode())
        if value is None:
            return -1
        assert size._obj.value >= len(value)
        ctypes.memmove(buffer, value, len(value))
        size._obj.value = len(value)
        return 0


def number(value: int) -> bytes:
    return struct.pack("=i", value)


def library(**values: bytes) -> MacMemory:
    named = {"level": KERNEL, "older": OLDER, "swap": "vm.swapusage"}
    return MacMemory(SysctlLibrary(Library({named[key]: v for key, v in values.items()})))


@pytest.mark.parametrize(
    ("value", "level"),
    [(1, Level.NORMAL), (2, Level.WARNING), (4, Level.CRITICAL), (0, Level.NORMAL)],
)
def test_macos_by_the_library(value: int, level: Level) -> None:
    assert library(level=number(value), swap=SWAPUSAGE).read() == Reading(
        level=level, swap={"used": USED}
    )


def test_macos_under_its_older_name() -> None:
    assert library(older=number(2)).read() == Reading(level=Level.WARNING)


def test_macos_that_only_tells_the_swap_is_read_on() -> None:
    assert library(swap=SWAPUSAGE).read() == Reading(swap={"used": USED})


def test_macos_that_tells_nothing_is_an_error() -> None:
    with pytest.raises(OSError, match="neither"):
        library().read()


def command(tmp_path: Path, values: Mapping[str, str]) -> SysctlCommand:
    """A `sysctl` that knows these values, as a real program."""
    path = tmp_path / "sysctl"
    cases = "".join(f"{name}) echo '{said}' ;;\n" for name, said in values.items())
    path.write_text(
        f'#!/bin/sh\n[ "$1" = -n ] || exit 64\ncase "$2" in\n{cases}'
        "*) echo \"sysctl: unknown oid '$2'\" >&2; exit 1 ;;\nesac\n"
    )
    path.chmod(0o755)
    return SysctlCommand(str(path))


def test_the_two_samples_are_of_one_moment() -> None:
    total, available, used, page, encrypted = struct.unpack("=QQQII", SWAPUSAGE)
    assert (total, available, used) == (4096 * MIB, 666.25 * MIB, 3429.75 * MIB)
    assert (total - available, page, encrypted) == (used, 16384, 1)


def test_macos_by_the_command(tmp_path: Path) -> None:
    way = command(tmp_path, {KERNEL: "4", "vm.swapusage": SAID})
    assert MacMemory(way).read() == Reading(level=Level.CRITICAL, swap={"used": USED})


def test_the_command_s_older_name_and_no_swap(tmp_path: Path) -> None:
    assert MacMemory(command(tmp_path, {OLDER: "2"})).read() == Reading(level=Level.WARNING)


@pytest.mark.parametrize(
    ("said", "used"),
    [
        (SAID, USED),
        ("total = 0.00M  used = 0.00M  free = 0.00M  (encrypted)", 0),
        ("total = 4096,00M  used = 3429,75M  free = 666,25M  (encrypted)", USED),
        ("total = 3.00G  used = 1.50G  free = 1.50G", 1536 * MIB),
        ("vm.swapusage: what it may say one day", None),
    ],
)
def test_swap_as_the_command_writes_it(said: str, used: int | None, tmp_path: Path) -> None:
    assert command(tmp_path, {"vm.swapusage": said}).swap_used() == used


def found_on_a_mac(
    monkeypatch: pytest.MonkeyPatch, library: object, command: SysctlCommand | None
) -> MacMemory | None:
    path = command._command if command else None
    monkeypatch.setattr(ctypes, "CDLL", lambda *_, **__: library)
    monkeypatch.setattr(shutil, "which", lambda *_, **__: path)
    return MacMemory.find()


def test_the_library_comes_first(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    normal = Library({KERNEL: number(1)})
    found = found_on_a_mac(monkeypatch, normal, command(tmp_path, {KERNEL: "4"}))
    assert found is not None
    assert found.read().level is Level.NORMAL
    assert found.more_cpu == 0


@pytest.mark.parametrize("library", [object(), Library({})], ids=["has no sysctl", "knows nothing"])
def test_the_command_where_the_library_does_not_help(
    library: object, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    found = found_on_a_mac(monkeypatch, library, command(tmp_path, {KERNEL: "4"}))
    assert found is not None
    assert found.read().level is Level.CRITICAL
    assert found.more_cpu > 0


def test_neither_library_nor_command(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert found_on_a_mac(monkeypatch, object(), command(tmp_path, {})) is None
    assert found_on_a_mac(monkeypatch, object(), None) is None


@pytest.mark.skipif(sys.platform != "darwin", reason="this is no Mac")
def test_macos_for_real() -> None:
    found = MacMemory.find()
    assert found is not None
    reading = found.read()
    assert reading.level is not None
    assert reading.swap["used"] >= 0
