"""docs/http.md names each counter of the report, and no other."""

from __future__ import annotations

import re
from pathlib import Path

from mlx_stack_proxy.engine.record import WAYS
from mlx_stack_proxy.telemetry import accounts, counters

ROOT = Path(__file__).parents[2]
APP = ROOT / "app" / "mlx_stack_proxy"
PAGE = (ROOT / "docs" / "http.md").read_text("utf-8")


def documented() -> set[str]:
    table = PAGE.split("| counter | what |")[1].split("\n\n")[0]
    cells = re.findall(r"^\| (.+?) \|", table, re.MULTILINE)
    names = {name.partition(":")[0] for cell in cells for name in re.findall(r"`([^`]+)`", cell)}
    return names


def counted() -> set[str]:
    source = (APP / "telemetry" / "counters.py").read_text("utf-8")
    names = set(re.findall(r'row\["(\w+)"\]', source))
    names |= {*WAYS, *sum(counters.PARTS.values(), ()), "doubted_calls"}
    names |= {name for row in counters.INCIDENTS.values() for name in row.hour.values()}
    names |= {*accounts._COUNTED.values(), "kills"}
    return names | {f"pressure_{level}_seconds" for level in ("warning", "critical")}


def test_each_counter_is_explained() -> None:
    assert documented() == counted()
