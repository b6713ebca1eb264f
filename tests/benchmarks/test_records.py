"""Results on disk, and the tables made of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from benchmarks import pages
from benchmarks.agents import report
from benchmarks.agents.columns import COLUMNS, GROUPS, Part
from benchmarks.agents.records import ROOT, Records

Json = dict[str, Any]


def row(right: bool = True, flaw: str = "", loop: str = "", tier: str = "fast") -> Json:
    return {
        "calls": 1,
        "right": right,
        "end": "answered",
        "wrong": "" if right else "state",
        "replies": [{"tier": tier, "finish": "stop", "flaw": flaw, "tokens": 10}],
        "attempts": [{"model": tier, "status": 200, "tokens": 10, "loop": loop, "fault": ""}],
        "seconds": 2.0,
    }


def test_what_is_written_is_read_again_by_its_part(tmp_path: Path) -> None:
    records = Records(tmp_path / "results.jsonl", ["demo"])
    records.add(Part("a"), 3, row())
    records.add(Part("a", 8), 3, row(False))
    again = Records(tmp_path / "results.jsonl", ["demo"])
    assert list(again.read(Part("a"))) == [3]
    assert again.read(Part("a", 8))[3]["right"] is False
    assert again.read(Part("b")) == {}
    assert again.read(Part("a", faults=True)) == {}


def test_a_line_that_was_cut_off_is_left_out(tmp_path: Path) -> None:
    path = tmp_path / "results.jsonl"
    records = Records(path, ["demo"])
    records.add(Part("a"), 0, row())
    records.add(Part("a"), 1, row())
    path.write_text(path.read_text()[:-40])
    assert list(records.read(Part("a"))) == [0]


def test_results_of_other_models_are_not_ours(tmp_path: Path) -> None:
    Records(tmp_path / "r", ["demo"]).add(Part("a"), 0, row())
    assert Records(tmp_path / "r", ["http://mine", "qwen"]).read(Part("a")) == {}


def test_the_table_says_what_came_out(tmp_path: Path) -> None:
    records = Records(tmp_path / "r", ["demo"])
    for task in range(10):
        records.add(Part("a"), task, row(task < 2, flaw="" if task < 2 else "empty", loop="turns"))
        records.add(Part("b"), task, row(task < 9, tier="standard"))
        records.add(Part("c"), task, row(task < 9, loop="turns" if task == 0 else ""))
    table = report.whole(records, GROUPS["main"], 10)
    assert "| **right** | **2** (20.0%) | **9** (90.0%) | **9** (90.0%) |" in table
    assert "| **broken replies that reached the agent** | **8** | **0** | **0** |" in table
    assert "| seed 7, 10 tasks | 9 to 9: met | 100.0%: met | 0: met | 90.0%: met |" in table
    assert "+0.0 (" in table
    assert "7 gained, 0 lost" in table


def test_a_table_is_of_the_tasks_that_all_its_columns_have_done(tmp_path: Path) -> None:
    records = Records(tmp_path / "r", ["demo"])
    for task in range(4):
        records.add(Part("a"), task, row(False))
        records.add(Part("b"), task, row(tier="standard"))
    records.add(Part("c"), 1, row())
    records.add(Part("c"), 2, row(False))
    table = report.whole(records, GROUPS["main"], 10)
    assert "| tasks | 2 | 2 | 2 |" in table
    assert "| seed 7, 2 tasks | 1 to 2: **not met** |" in table
    about = {"machine": "m", "date": "d", "commit": "c", "command": "make it"}
    short = report.short(records, 10, about)
    assert "| right | 0 (0%) | 2 (100%) | 1 (50%) |" in short
    assert short.endswith("(`make it`, m, d, commit `c`)")
    assert report.short(Records(tmp_path / "none", ["demo"]), 10, about) == ""


@pytest.mark.parametrize(
    ("page", "marker"),
    [("benchmarks/agents.md", report.MARKER), ("README.md", report.MARKER_SHORT)],
)
def test_the_pages_that_are_written_have_the_markers(page: str, marker: str) -> None:
    text = (ROOT / page).read_text()
    assert pages.between(text, marker, "x") != text


def test_unmet_goals_are_said(tmp_path: Path) -> None:
    records = Records(tmp_path / "r", ["demo"])
    records.add(Part("a"), 0, row(False, loop="text"))
    records.add(Part("b"), 0, row(tier="standard"))
    records.add(Part("c"), 0, row(False, flaw="schema", loop="turns", tier="standard"))
    assert report.whole(records, GROUPS["main"], 10).count("**not met**") == 4


def test_each_part_has_a_column_of_its_own() -> None:
    parts = [part for group in GROUPS.values() for part in group]
    assert len(set(parts)) == len(parts)
    assert {part.column for part in parts} == set(COLUMNS)
