"""A short run for real: it takes its figures, and a leak makes it fail."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.soak import clients
from benchmarks.soak.__main__ import report, soak
from benchmarks.soak.clients import Scenario
from tests.benchmarks.tables import narrow

# What ends at once; the rest waits for the limits on silence.
QUICK = [Scenario(once, 1, 0.02) for once in (clients.mending, clients.newcomers)]
SECONDS = 3.0


async def test_a_leak_is_found(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = await soak(SECONDS / 60, tmp_path, wrapper=["benchmarks.soak.leaking"], scenarios=QUICK)
    assert found.wrong == []
    assert found.reloads and found.outages
    assert set(found.ended) == {scenario.name for scenario in QUICK}
    assert all(ended["good"] for ended in found.ended.values())
    assert not report(found)
    said = narrow(capsys.readouterr().out)
    (files,) = (line for line in said.splitlines() if line.startswith("| open files "))
    assert files.endswith("| NOT FLAT |")
    assert "NOT FLAT: something grew by more than 5%." in said
