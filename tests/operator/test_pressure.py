"""The command `pressure`: the level, told once."""

from __future__ import annotations

import json

import pytest

from mlx_stack_proxy.memory_pressure import readers
from mlx_stack_proxy.memory_pressure.pressure import Level, Reading
from mlx_stack_proxy.operator import pressure
from tests.operator.conftest import Typed


class Machine:
    """What is found here: these readings, one after the other, the last again and again."""

    name = "forced"

    def __init__(self, *readings: Reading | Exception) -> None:
        self.readings = list(readings)

    def read(self) -> Reading:
        reading = self.readings.pop(0) if len(self.readings) > 1 else self.readings[0]
        if isinstance(reading, Exception):
            raise reading
        return reading


def on(machine: Machine | None, typed: Typed) -> None:
    typed.monkeypatch.setattr(pressure, "SWAP_SECONDS", 0.01)
    typed.monkeypatch.setattr(readers, "this_machine", lambda: machine)


@pytest.mark.parametrize(
    ("readings", "said"),
    [
        ([Reading(some=12.0)], "warning, because of stalls (read from: forced)\n"),
        # Looked at twice:
        ([Reading(swap={"used": 0}), Reading(swap={"used": 2**40})], "critical, because of swap"),
    ],
)
def test_the_level_is_printed(readings: list[Reading], said: str, typed: Typed) -> None:
    on(Machine(*readings), typed)
    ran = typed("pressure")
    assert (ran.code, ran.out.startswith(said)) == (0, True)


def test_as_json(typed: Typed) -> None:
    on(Machine(Reading(level=Level.NORMAL)), typed)
    assert json.loads(typed("pressure", "--json").out) == {
        "level": "normal",
        "cause": None,
        "source": "forced",
        "reading": {"level": "normal"},
    }


def test_the_configuration_s_threshold_counts_even_where_the_proxy_ignores_memory(
    typed: Typed,
) -> None:
    rules = f"{{enabled: false, thresholds: {{swap_warning_bytes_per_second: {2**60}}}}}"
    typed.write(f"reliability: {{memory_pressure: {rules}}}")
    on(Machine(Reading(swap={"used": 0}), Reading(swap={"used": 2**40})), typed)
    assert typed("pressure").out.startswith("normal (")


@pytest.mark.parametrize(
    ("machine", "words", "why"),
    [
        (None, [], "this machine reports no memory pressure\n"),
        (None, ["--serve"], "this machine reports no memory pressure\n"),
        (Machine(OSError("it broke")), [], "OSError: it broke\n"),
    ],
)
def test_nothing_to_tell(machine: Machine | None, words: list[str], why: str, typed: Typed) -> None:
    on(machine, typed)
    code, out, err = typed("pressure", *words)
    assert (code, out, err.endswith(why)) == (1, "", True)
