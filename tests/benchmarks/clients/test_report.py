"""The tables of `make bench-clients`."""

from __future__ import annotations

from typing import Any

from benchmarks.clients import report
from benchmarks.clients.report import DIRECT, PROXIED
from tests.benchmarks.tables import narrow

Json = dict[str, Any]


def row(done: bool = True, last: str = "", **flaws: int) -> Json:
    return {
        "done": done,
        "exit": 0 if done else 1,
        "requests": 7,
        "calls": 8,
        "prompt_tokens": 1000,
        "written_tokens": 100,
        "spoiled": {"nothing": 1},
        "last": last,
        "flaws": flaws,
        "seconds": 30.0,
    }


def test_a_client_has_two_columns_of_the_tasks_that_both_have_done() -> None:
    direct = {0: row(False, "nothing", empty=1), 1: row(), 2: row(False, "a call as text")}
    both = {DIRECT: direct, PROXIED: {0: row(), 1: row(error=2)}}
    table = narrow(report.whole({"Codex 1": both}))
    assert "| tasks | 2 | 2 |" in table
    assert "| **done** | **1** | **2** |" in table
    assert "| **broken replies that the client saw** | **1** | **2** |" in table
    assert "| minutes | 1.0 | 1.0 |" in table
    assert "| nothing | 2 (1 lost) | 2 |" in table
    assert "a call as text" not in table
    assert "- Codex 1, directly: empty 1" in table


def test_a_client_that_has_one_way_only_is_left_out() -> None:
    none = "No task has been done both ways yet."
    assert report.whole({"Codex 1": {DIRECT: {0: row()}, PROXIED: {}}}) == none
