from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.support import ports

# Drawn blindly, 500 and 500 of 10,000 would meet about 25 times.
GIVEN = 500
TAKE = "from tests.support.ports import free_port; print(*(free_port() for _ in range({})))"


def test_no_port_is_given_out_twice_to_processes_that_live_at_once() -> None:
    here = [ports.free_port() for _ in range(GIVEN)]
    taken = subprocess.run(
        [sys.executable, "-c", TAKE.format(GIVEN)],
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        check=True,
    )
    there = [int(port) for port in taken.stdout.split()]
    assert len({*here, *there}) == 2 * GIVEN


def test_a_row_that_is_not_to_be_had_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ports, "_given", set(range(ports.LOWEST, ports.HIGHEST, 2)))
    with pytest.raises(OSError, match="no 2 free ports in a row"):
        ports.free_port(2)
