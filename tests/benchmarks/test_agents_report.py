"""The tables of the agents' tasks, from made-up results."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from benchmarks.agents import report
from benchmarks.agents.columns import COLUMNS, GROUPS, Part
from benchmarks.agents.records import Records

Json = dict[str, Any]


EVEN = "+0.0 (-49.0 to +49.0) points; 0 gained, 0 lost, p 1.000"


def row(*, right: bool = True, tier: str = "", flaw: str = "", burnt: int = 0) -> Json:
    return {
        "calls": 1,
        "right": right,
        "wrong": "" if right else "state",
        "replies": [{"tier": tier, "flaw": flaw}],
        "attempts": [
            {"model": "fast", "tokens": 10, "loop": "", "fault": ""},
            {"model": "fast", "tokens": burnt, "loop": "call" if burnt else "", "fault": ""},
        ],
        "seconds": 1.0,
    }


@pytest.fixture
def records(tmp_path: Path) -> Records:
    return Records(tmp_path / "results.jsonl", ["made up"])


def fill(records: Records, parts: list[Part], **of_c: Any) -> None:
    """Two tasks each; `of_c`: what the second one through the proxy is like."""
    for part in parts:
        burnt = 100 if part.column == "a" else 0
        records.add(part, 0, row(tier="fast", burnt=burnt))
        records.add(part, 1, row(tier="fast") if part.column != "c" else row(**of_c))


def goals(records: Records) -> list[list[str]]:
    """The rows of the goals' table, in cells."""
    text = report.whole(records, [part for parts in GROUPS.values() for part in parts], 200)
    lines = text.partition("### Goals\n\n")[2].splitlines()[2:]
    return [line.strip("| ").split(" | ") for line in lines]


def test_all_goals_are_met(records: Records) -> None:
    fill(records, [Part(key) for key in COLUMNS], tier="fast", burnt=10)
    assert goals(records) == [
        ["seed 7", "2", "2 (100.0%)", "2 to 2: met", EVEN, "100.0%: met", "0: met", "90.0%: met"]
    ]


@pytest.mark.parametrize(
    ("of_c", "cell", "said"),
    [
        ({"right": False}, 3, "1 to 2: **not met**"),
        ({"flaw": "empty"}, 6, "1: **not met**"),
        ({"burnt": 11}, 7, "89.0%: **not met**"),
    ],
)
def test_a_goal_that_is_missed_says_so(records: Records, of_c: Json, cell: int, said: str) -> None:
    fill(records, [Part(key) for key in COLUMNS], **{"tier": "fast", **of_c})
    assert goals(records)[0][cell] == said


def test_each_seed_is_judged_and_all_together_and_faults(records: Records) -> None:
    fill(records, [Part(key) for key in COLUMNS], tier="fast")
    fill(records, [Part(key, 8) for key in COLUMNS], tier="fast", burnt=15)
    fill(records, list(GROUPS["faults"]), tier="fast", flaw="empty")
    found = {cells[0]: cells[1:] for cells in goals(records)}
    assert list(found) == ["seed 7", "seed 8", "with faults", "all seeds"]
    assert found["seed 8"][6] == "85.0%: **not met**"
    assert found["all seeds"][0] == "4"
    assert found["all seeds"][6] == "92.5%: met"
    assert found["with faults"][5] == "1: **not met**"


def test_a_table_is_of_the_tasks_that_all_its_columns_have_done(records: Records) -> None:
    for task in range(4):
        records.add(Part("a"), task, row(right=False))
        records.add(Part("b"), task, row(tier="standard"))
    records.add(Part("c"), 1, row(tier="standard"))
    records.add(Part("c"), 2, row(right=False, tier="fast"))
    table = report.whole(records, GROUPS["main"], 10)
    assert "| tasks | 2 | 2 | 2 |" in table
    assert "| **right** | **0** (0.0%) | **2** (100.0%) | **1** (50.0%) |" in table


def test_results_are_read_again_by_their_part(tmp_path: Path) -> None:
    path = tmp_path / "results.jsonl"
    records = Records(path, ["demo"])
    records.add(Part("a"), 3, row())
    records.add(Part("a", 8), 3, row(right=False))
    again = Records(path, ["demo"])
    assert list(again.read(Part("a"))) == [3]
    assert again.read(Part("a", 8))[3]["right"] is False
    assert again.read(Part("b")) == again.read(Part("a", faults=True)) == {}
    assert Records(path, ["http://mine", "qwen"]).read(Part("a")) == {}, "of other models"
    path.write_text(path.read_text()[:-40])
    assert records.read(Part("a", 8)) == {}, "its line was cut off"
