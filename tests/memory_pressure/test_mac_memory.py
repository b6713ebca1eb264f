"""macOS's memory, from samples."""

from __future__ import annotations

import ctypes
import struct
import sys
from collections.abc import Mapping
from typing import Any

import pytest

from mlx_stack_proxy.memory_pressure.pressure import Level, Reading
from mlx_stack_proxy.memory_pressure.readers import LEVEL_NAME as KERNEL
from mlx_stack_proxy.memory_pressure.readers import MacMemory

# `sysctl -n vm.swapusage` as an arm64 Mac prints it, and the same as the `struct xsw_usage`
# of xnu's sys/sysctl.h that `sysctlbyname` fills: three 64-bit counts of bytes (total, available,
# used), then the page size and whether it is encrypted.
SWAPUSAGE = bytes.fromhex(
    "0000000001000000"  # total = 4096.00M
    "0000a42900000000"  # free = 666.25M: available
    "00005cd600000000"  # used = 3429.75M
    "0040000001000000"
)
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
    named = {"level": KERNEL, "swap": "vm.swapusage"}
    return MacMemory(Library({named[key]: v for key, v in values.items()}))


@pytest.mark.parametrize(
    ("value", "level"),
    [(1, Level.NORMAL), (2, Level.WARNING), (4, Level.CRITICAL), (0, Level.NORMAL)],
)
def test_macos_by_the_library(value: int, level: Level) -> None:
    assert library(level=number(value), swap=SWAPUSAGE).read() == Reading(
        level=level, swap={"used": USED}
    )


def test_macos_that_only_tells_the_swap_is_read_on() -> None:
    assert library(swap=SWAPUSAGE).read() == Reading(swap={"used": USED})


def test_macos_that_tells_nothing_is_an_error() -> None:
    with pytest.raises(OSError, match="neither"):
        library().read()


@pytest.mark.parametrize(
    ("library", "is_found"),
    [(Library({KERNEL: number(1)}), True), (Library({}), False), (object(), False)],
    ids=["knows a level", "knows nothing", "has no sysctl"],
)
def test_a_mac_is_found(library: object, is_found: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ctypes, "CDLL", lambda *_, **__: library)
    assert (MacMemory.find() is not None) is is_found


@pytest.mark.skipif(sys.platform != "darwin", reason="this is no Mac")
def test_macos_for_real() -> None:
    found = MacMemory.find()
    assert found is not None
    reading = found.read()
    assert reading.level is not None
    assert reading.swap["used"] >= 0
