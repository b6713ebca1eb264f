"""Readers: Linux from files, macOS from samples, a host's answer, and which is taken."""

from __future__ import annotations

import ctypes
import struct
import sys
from collections import namedtuple
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import psutil
import pytest

from mlx_stack_proxy.memory_pressure import readers
from mlx_stack_proxy.memory_pressure.pressure import Level, Reading
from mlx_stack_proxy.memory_pressure.readers import LEVEL_NAME as KERNEL
from mlx_stack_proxy.memory_pressure.readers import (
    HostMemory,
    LinuxMemory,
    MacMemory,
    Threaded,
    host_reading,
    open_reader,
)
from tests.support.scripted_server import Reply, ScriptedServer

MIB = 1024 * 1024


# Linux, from the files as kernels write them

PSI = """\
some avg10=23.11 avg60=8.02 avg300=2.15 total=191284317
full avg10=12.07 avg60=4.11 avg300=1.02 total=99102133
"""
QUIET = PSI.replace("23.11", "0.00").replace("12.07", "0.00")
STAT = """\
anon 6442450944
file 1879048192
kernel 52428800
shmem 8192
inactive_anon 6442459136
active_anon 4096
inactive_file 1610612736
active_file 268427264
unevictable 0
"""
Swap = namedtuple("Swap", "total used sin sout")


def no_swap() -> Swap:
    return Swap(0, 0, 0, 0)


class Machine:
    """A machine's files. Paths begin with `proc/` or `cgroup/`."""

    def __init__(self, root: Path) -> None:
        self.proc, self.cgroups = root / "proc", root / "cgroup"
        self.write("proc/self/cgroup", "0::/\n")
        self.cgroups.mkdir()

    def write(self, path: str, text: str) -> None:
        file = self.proc.parent / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)

    def limits(self, folder: str = "cgroup", *, most: str, current: int, stat: str = STAT) -> None:
        self.write(f"{folder}/memory.max", most + "\n")
        self.write(f"{folder}/memory.current", f"{current}\n")
        self.write(f"{folder}/memory.stat", stat)

    def reader(self, swap: Any = no_swap) -> LinuxMemory:
        return LinuxMemory(self.proc, self.cgroups, swap)


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def test_psi_of_the_machine(machine: Machine) -> None:
    machine.write("proc/pressure/memory", PSI)
    reader = machine.reader()
    assert reader.name == "PSI"
    assert reader.read() == Reading(some=23.11, full=12.07)


def test_psi_of_a_kernel_that_has_it_switched_off(machine: Machine) -> None:
    """With `psi=0` the file is there, and reading it fails."""
    (machine.proc / "pressure" / "memory").mkdir(parents=True)
    assert machine.reader().name == ""


def test_our_cgroup_s_own_psi_counts_where_it_is_worse(machine: Machine) -> None:
    machine.write("proc/self/cgroup", "0::/system.slice/mlx.service\n")
    machine.write("proc/pressure/memory", QUIET)
    machine.write("cgroup/system.slice/mlx.service/memory.pressure", PSI)
    assert machine.reader().read() == Reading(some=23.11, full=12.07)


def test_a_container_s_limit_without_its_file_cache(machine: Machine) -> None:
    """8 GiB, of which 8,388,009,984 bytes are in use; 1,879,040,000 of them are files' cache."""
    machine.limits(most="8589934592", current=8_388_009_984)
    reader = machine.reader()
    assert reader.name == "cgroup limit"
    share = reader.read().limit_used
    assert share == pytest.approx((8_388_009_984 - 1_879_040_000) / 8_589_934_592)


def test_a_cgroup_around_ours_limits_it_too(machine: Machine) -> None:
    machine.write("proc/self/cgroup", "0::/user.slice/app.scope\n")
    machine.limits("cgroup/user.slice/app.scope", most="max", current=1000)
    machine.limits("cgroup/user.slice", most="1000000", current=950_000, stat="anon 950000\n")
    assert machine.reader().read().limit_used == 0.95


def test_a_limit_that_changes_is_seen(machine: Machine) -> None:
    machine.limits(most="1000", current=500, stat="")
    reader = machine.reader()
    assert reader.read().limit_used == 0.5
    machine.write("cgroup/memory.max", "max\n")
    assert reader.read().limit_used is None
    machine.write("cgroup/memory.max", "520\n")
    assert reader.read().limit_used == pytest.approx(500 / 520)


def test_the_swap_of_the_machine_and_of_the_container(machine: Machine) -> None:
    machine.limits(most="8589934592", current=1)
    machine.write("cgroup/memory.swap.current", "73400320\n")
    reader = machine.reader(lambda: Swap(4096 * MIB, 100 * MIB, 5, 300 * MIB))
    assert reader.name == "cgroup limit, swap"
    assert reader.read().swap == {"used": 100 * MIB, "out": 300 * MIB, "cgroup": 73400320}


def test_a_file_that_goes_away_tells_nothing(machine: Machine) -> None:
    machine.write("proc/pressure/memory", PSI)
    machine.limits(most="1000", current=900, stat="")
    reader = machine.reader()
    (machine.proc / "pressure" / "memory").unlink()
    (machine.cgroups / "memory.current").unlink()
    assert reader.read() == Reading()


@pytest.mark.skipif(not Path("/proc/pressure/memory").exists(), reason="no PSI in this kernel")
def test_psi_for_real() -> None:
    reader = LinuxMemory.find()
    if reader is None:
        pytest.skip("PSI is switched off in this kernel")
    reading = reader.read()
    assert reading.some is not None
    assert 0 <= reading.some <= 100


@pytest.mark.skipif(sys.platform != "linux", reason="this is no Linux")
def test_swap_for_real() -> None:
    """psutil's names, whether this machine has a swap or not."""
    real = psutil.swap_memory()
    there = Swap(1, real.used, real.sin, real.sout)
    counters = LinuxMemory(swap=lambda: there).read().swap
    assert counters["used"] == real.used
    assert counters["out"] == real.sout


# Which reader


@pytest.mark.parametrize(("platform", "asked"), [("darwin", "MacMemory"), ("linux", "LinuxMemory")])
def test_which_reader_is_taken(platform: str, asked: str, monkeypatch: pytest.MonkeyPatch) -> None:
    class Found:
        name = "found"

    monkeypatch.setattr(sys, "platform", platform)
    monkeypatch.setattr(getattr(readers, asked), "find", Found)
    reader = open_reader("auto")
    assert reader is not None
    assert reader.name == "found"
    monkeypatch.setattr(sys, "platform", "win32")
    assert open_reader("auto") is open_reader("off") is None
    host = open_reader("http://user:secret@host.docker.internal:4110/")
    assert host is not None and host.name == "host"


# In a thread


async def test_a_blocking_reader_is_read_in_a_thread_of_its_own() -> None:
    import threading

    class Blocking:
        name = "blocking"

        def read(self) -> Reading:
            assert threading.current_thread() is not threading.main_thread()
            return Reading(some=1.0)

    reader = Threaded(Blocking())
    assert await reader.read() == Reading(some=1.0)
    await reader.close()


# A host's answer


@pytest.mark.parametrize(
    ("body", "level"),
    [
        (b'{"level": "normal"}', Level.NORMAL),
        (b'{"level": "critical", "cause": "swap", "more": 1}', Level.CRITICAL),
    ],
)
def test_a_host_s_answer(body: bytes, level: Level) -> None:
    assert host_reading(body) == Reading(level=level)


@pytest.mark.parametrize(
    "body", [b"", b"normal", b"[]", b"null", b"{}", b'{"level": 4}', b'{"level": "high"}']
)
def test_an_answer_that_is_none(body: bytes) -> None:
    with pytest.raises(ValueError):
        host_reading(body)


async def test_a_host_over_http() -> None:
    async with ScriptedServer() as host:
        host.will(
            Reply.json({"level": "warning"}),
            Reply.json({"error": "not read yet"}, status=503),
            Reply.json(b"x" * 100_000),
        )
        reader = HostMemory(f"{host.url}/")
        try:
            assert await reader.read() == Reading(level=Level.WARNING)
            assert [host.calls[0].method, host.calls[0].target] == ["GET", "/"]
            with pytest.raises(ValueError, match="503"):
                await reader.read()
            with pytest.raises(Exception, match="more than"):
                await reader.read()
            await host.stop()
            with pytest.raises(Exception, match="refused"):
                await reader.read()
        finally:
            await reader.close()


def test_cgroup_v1_and_no_psi_are_nothing_to_read(machine: Machine) -> None:
    machine.write("proc/self/cgroup", "4:memory:/process_api\n1:cpu:/\n0::/\n")
    machine.write("cgroup/memory/memory.limit_in_bytes", "8589934592\n")
    assert machine.reader().name == ""


# macOS

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
