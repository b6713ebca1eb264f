"""The goals on recorded cases, where those are present; `make score` prints the whole table."""

from __future__ import annotations

from typing import Any

import pytest

from benchmarks.measure import score
from benchmarks.measure.corpora import CORPORA, rows

ISSUES = rows(CORPORA / "issues_malformed.jsonl")


@pytest.mark.skipif(not ISSUES, reason="the recorded cases are not here")
@pytest.mark.parametrize("row", ISSUES, ids=lambda row: row["id"])
def test_a_shape_that_users_reported(row: dict[str, Any]) -> None:
    assert score.issue_miss(row) is None


@pytest.mark.skipif(not ISSUES, reason="the recorded cases are not here")
def test_every_goal_is_met() -> None:
    said: list[str] = []
    assert score.run(said.append) == 0, "\n".join(said)


def test_without_the_corpora_there_is_one_line(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    monkeypatch.setattr(score, "CORPORA", tmp_path)
    said: list[str] = []
    assert score.run(said.append) == 0
    assert len(said) == 1
    assert "nothing to score" in said[0]
