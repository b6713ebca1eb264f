"""The tables of the agents' tasks, from made-up results."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from benchmarks.agents import report
from benchmarks.agents.report import COLUMNS, GROUPS, Part, keys
from benchmarks.records import Results
from tests.benchmarks.tables import narrow

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


Done = dict[Part, dict[int, Json]]


def filled(parts: list[Part], **of_c: Any) -> Done:
    """Two tasks each; `of_c`: what the second one through the proxy is like."""
    found = {}
    for part in parts:
        burnt = 100 if part.column == "a" else 0
        second = row(tier="fast") if part.column != "c" else row(**of_c)
        found[part] = {0: row(tier="fast", burnt=burnt), 1: second}
    return found


def goals(done: Done) -> list[list[str]]:
    """The rows of the goals' table, in cells."""
    lines = narrow(report.whole(done)).partition("### Goals\n\n")[2].splitlines()[2:]
    return [line.strip("| ").split(" | ") for line in lines]


def test_all_goals_are_met() -> None:
    assert goals(filled(GROUPS["main"], tier="fast", burnt=10)) == [
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
def test_a_goal_that_is_missed_says_so(of_c: Json, cell: int, said: str) -> None:
    assert goals(filled(GROUPS["main"], **{"tier": "fast", **of_c}))[0][cell] == said


def test_each_seed_is_judged_and_all_together_and_faults() -> None:
    done = filled(GROUPS["main"], tier="fast")
    done |= filled([Part(key, 8) for key in COLUMNS], tier="fast", burnt=15)
    done |= filled(GROUPS["faults"], tier="fast", flaw="empty")
    found = {cells[0]: cells[1:] for cells in goals(done)}
    assert list(found) == ["seed 7", "seed 8", "with faults", "all seeds"]
    assert found["seed 8"][6] == "85.0%: **not met**"
    assert found["all seeds"][0] == "4"
    assert found["all seeds"][6] == "92.5%: met"
    assert found["with faults"][5] == "1: **not met**"


def test_a_table_is_of_the_tasks_that_all_its_columns_have_done() -> None:
    done: Done = {
        Part("a"): dict.fromkeys(range(4), row(right=False)),
        Part("b"): dict.fromkeys(range(4), row(tier="standard")),
        Part("c"): {1: row(tier="standard"), 2: row(right=False, tier="fast")},
    }
    table = narrow(report.whole(done))
    assert "| tasks | 2 | 2 | 2 |" in table
    assert "| **right** | **0** (0.0%) | **2** (100.0%) | **1** (50.0%) |" in table


def test_results_are_read_again_by_their_part(tmp_path: Path) -> None:
    path, key = tmp_path / "results.jsonl", keys(["demo"])
    results = Results(path)
    results.add(key(Part("a")), 3, row())
    results.add(key(Part("a", 8)), 3, row(right=False))
    again = Results(path)
    assert list(again.first(key(Part("a")), 4)) == [3]
    assert again.missing(key(Part("a")), 5) == [0, 1, 2, 4]
    assert again.read(key(Part("a", 8)))[3]["right"] is False
    assert again.read(key(Part("b"))) == again.read(key(Part("a", faults=True))) == {}
    assert again.read(keys(["http://mine", "qwen"])(Part("a"))) == {}, "of other models"
    path.write_text(path.read_text()[:-40])
    assert results.read(key(Part("a", 8))) == {}, "its line was cut off"
