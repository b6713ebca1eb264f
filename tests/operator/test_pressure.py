"""The command `pressure`: the level, told once."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from mlx_stack_proxy.memory_pressure import readers
from mlx_stack_proxy.memory_pressure.pressure import Level, Reading
from mlx_stack_proxy.operator import cli, pressure


class Machine:
    """What `this_machine` finds: these readings, one after the other, the last again and again."""

    name = "forced"

    def __init__(self, *readings: Reading | Exception) -> None:
        self.readings = list(readings)

    def read(self) -> Reading:
        reading = self.readings.pop(0) if len(self.readings) > 1 else self.readings[0]
        if isinstance(reading, Exception):
            raise reading
        return reading


@pytest.fixture(autouse=True)
def bare(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("MLX_STACK_CONFIG", raising=False)
    monkeypatch.setattr(pressure, "SWAP_SECONDS", 0.01)


def this_machine(monkeypatch: pytest.MonkeyPatch, *readings: Reading | Exception) -> None:
    found = Machine(*readings) if readings else None
    monkeypatch.setattr(readers, "this_machine", lambda: found)


# Once


def test_the_level_is_printed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    this_machine(monkeypatch, Reading(some=12.0))
    assert cli.main(["pressure"]) == 0
    assert capsys.readouterr().out == "warning, because of stalls (read from: forced)\n"


def test_as_json(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    this_machine(monkeypatch, Reading(level=Level.NORMAL))
    assert cli.main(["pressure", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {
        "level": "normal",
        "cause": None,
        "source": "forced",
        "reading": {"level": "normal"},
    }


def test_the_swap_is_looked_at_twice(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    this_machine(monkeypatch, Reading(swap={"used": 0}), Reading(swap={"used": 2**40}))
    assert cli.main(["pressure"]) == 0
    assert capsys.readouterr().out.startswith("critical, because of swap")


def test_the_configuration_s_thresholds_count_even_where_the_proxy_ignores_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    rules = "{enabled: false, source: off, thresholds: {some_warning_percent: 50}}"
    (tmp_path / "config.yaml").write_text(f"reliability: {{memory_pressure: {rules}}}")
    this_machine(monkeypatch, Reading(some=12.0))
    assert cli.main(["pressure"]) == 0
    assert capsys.readouterr().out.startswith("normal (")


@pytest.mark.parametrize(
    ("readings", "why"),
    [
        ((), "nothing on this machine tells its memory pressure\n"),
        ((OSError("it broke"),), "OSError: it broke\n"),
    ],
)
def test_nothing_to_tell(
    readings: tuple[Exception, ...],
    why: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    this_machine(monkeypatch, *readings)
    assert cli.main(["pressure"]) == 1
    out, err = capsys.readouterr()
    assert out == ""
    assert err.endswith(why)


def test_nothing_to_serve(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    this_machine(monkeypatch)
    assert cli.main(["pressure", "--serve"]) == 1
    assert "nothing on this machine" in capsys.readouterr().err
