"""The probe: a look every so often, and readers that fail, hang and come back."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from mlx_stack_proxy import log
from mlx_stack_proxy.memory_pressure.pressure import NO_PRESSURE, Level, Pressure, Reading
from mlx_stack_proxy.memory_pressure.probe import MemoryProbe
from mlx_stack_proxy.settings import MemoryPressureSettings, ObservabilitySettings
from tests.support.forced_memory import ForcedMemory

WARNING, CRITICAL, NORMAL = Level.WARNING, Level.CRITICAL, Level.NORMAL
FAST = {"interval_seconds": 0.01}


@pytest.fixture(autouse=True)
def logged_as_json() -> None:
    log.configure(ObservabilitySettings(log_format="json"))


def said(capsys: pytest.CaptureFixture[str]) -> list[dict[str, Any]]:
    return [json.loads(line) for line in capsys.readouterr().err.splitlines()]


async def test_a_change_is_told_once(capsys: pytest.CaptureFixture[str]) -> None:
    memory = ForcedMemory()
    changes: list[tuple[Level, Level]] = []

    async def changed(before: Pressure, after: Pressure) -> None:
        changes.append((before.level, after.level))

    memory.probe.on_change = changed
    for level, after in [(NORMAL, 0), (CRITICAL, 5), (CRITICAL, 5), (NORMAL, 30), (NORMAL, 30)]:
        await memory.shows(level, after=after)
    assert changes == [(NORMAL, CRITICAL), (CRITICAL, WARNING), (WARNING, NORMAL)]
    lines = said(capsys)
    assert [(line["from"], line["to"], line["level"]) for line in lines] == [
        ("normal", "critical", "warning"),
        ("critical", "warning", "info"),
        ("warning", "normal", "info"),
    ]
    assert {line["cause"] for line in lines} == {"system"}


async def test_a_reader_that_raises_ages_to_normal(capsys: pytest.CaptureFixture[str]) -> None:
    memory = ForcedMemory(interval_seconds=5)
    await memory.shows(CRITICAL)
    memory.error = OSError("it broke")
    await memory.shows(CRITICAL, after=14)
    assert memory.probe.pressure.level is CRITICAL, "the last reading still counts"
    assert memory.probe.trouble is None
    await memory.shows(CRITICAL, after=1)
    assert memory.probe.trouble == "OSError: it broke"
    await memory.shows(CRITICAL, after=15)
    assert memory.probe.level is WARNING
    await memory.shows(CRITICAL, after=30)
    assert memory.probe.pressure == NO_PRESSURE
    assert memory.probe.level is None, "nobody knows any more"
    memory.error = None
    await memory.shows(WARNING, after=5)
    assert memory.probe.trouble is None
    assert memory.probe.pressure.level is WARNING
    lines = [line for line in said(capsys) if line["event"] != "pressure_changed"]
    stale, read_again = lines
    assert stale["event"] == "memory_pressure_stale"
    assert (stale["why"], stale["seconds"]) == ("OSError: it broke", 15.0)
    assert (stale["level"], stale["taken_as"]) == ("warning", "normal")
    assert read_again["event"] == "memory_pressure_read_again"


async def test_a_reader_that_never_told_anything_is_said_at_once(
    capsys: pytest.CaptureFixture[str],
) -> None:
    memory = ForcedMemory()
    memory.error = OSError("it broke")
    for _ in range(3):
        await memory.shows(CRITICAL)
    assert memory.probe.trouble == "OSError: it broke"
    assert memory.probe.pressure == NO_PRESSURE
    memory.error = ValueError("no level")
    await memory.shows(CRITICAL)
    assert memory.probe.trouble == "ValueError: no level", "what is wrong now"
    assert len(said(capsys)) == 1


class Hangs:
    """A reader that gives nothing until it is let go."""

    name = "hangs"

    def __init__(self) -> None:
        self.gate = asyncio.Event()
        self.asked = asyncio.Event()
        self.reads = 0

    async def read(self) -> Reading:
        self.reads += 1
        self.asked.set()
        await self.gate.wait()
        return Reading(level=WARNING)

    async def close(self) -> None:
        """Nothing to end."""


async def test_a_reader_that_hangs_is_asked_once_and_heard_when_it_answers() -> None:
    reader = Hangs()
    probe = MemoryProbe(MemoryPressureSettings(**FAST), reader, lambda: 0.0)
    await probe.look()
    await probe.look()
    assert reader.reads == 1
    assert probe.trouble == "no answer in time"
    assert probe.pressure == NO_PRESSURE
    reader.gate.set()
    await probe.look()
    assert (probe.pressure.level, probe.trouble) == (WARNING, None)


async def test_a_probe_whose_reader_hangs_can_be_closed() -> None:
    reader = Hangs()
    probe = MemoryProbe(MemoryPressureSettings(interval_seconds=60), reader, lambda: 0.0)
    probe.start()
    await reader.asked.wait()
    await probe.close()


async def test_a_change_that_can_not_be_acted_on_breaks_nothing(
    capsys: pytest.CaptureFixture[str],
) -> None:
    memory = ForcedMemory()

    async def fails(before: Pressure, after: Pressure) -> None:
        raise RuntimeError("no")

    memory.probe.on_change = fails
    await memory.shows(CRITICAL)
    assert memory.probe.pressure.level is CRITICAL
    assert "memory_pressure_fault" in [line["event"] for line in said(capsys)]


async def test_it_looks_by_itself() -> None:
    memory = ForcedMemory(**FAST)
    memory.probe.start()
    for _ in range(3):
        await memory.looks.get()
    await memory.probe.close()
    assert memory.closed


@pytest.mark.parametrize(("interval", "pause"), [(5.0, 5.0), (0.01, 0.1)])
async def test_looks_are_spaced_so_that_they_cost_one_percent(
    interval: float, pause: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    memory = ForcedMemory(interval_seconds=interval)
    slept: list[float] = []
    done = asyncio.Event()

    async def sleep(seconds: float) -> None:
        slept.append(seconds)
        done.set()
        await asyncio.Event().wait()

    monkeypatch.setattr("mlx_stack_proxy.memory_pressure.probe.asyncio.sleep", sleep)
    memory.probe.start()
    await done.wait()
    assert slept == [pytest.approx(pause)]
    await memory.probe.close()


@pytest.mark.parametrize("enabled", [True, False])
async def test_without_a_source_all_is_normal_and_said_once(
    enabled: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    probe = MemoryProbe(MemoryPressureSettings(enabled=enabled), None, lambda: 0.0)
    probe.start()
    await probe.look()
    await probe.close()
    assert (probe.pressure, probe.level, probe.source) == (NO_PRESSURE, None, None)
    assert [line["event"] for line in said(capsys)] == ["memory_pressure_unknown"] * enabled


async def test_switched_off_nothing_is_read() -> None:
    memory = ForcedMemory(enabled=False)
    memory.probe.start()
    await memory.shows(CRITICAL)
    assert (memory.looks.qsize(), memory.probe.level) == (0, None)
    await memory.probe.close()
