"""The score of other projects' tests: its goals, and the exceptions that are named."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from benchmarks.measure import score_peers

KNOWN = next(iter(score_peers.KNOWN))
TOOL = {"name": "look", "parameters": {"type": "object"}}


def row(address: str, text: str, expected: list[Any]) -> str:
    return json.dumps(
        {"address": address, "input": {"text": text, "tools": [TOOL]}, "expected": expected}
    )


@pytest.fixture
def scored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Any:
    monkeypatch.setattr(score_peers, "PEERS", tmp_path)
    monkeypatch.setattr(sys, "argv", ["score_peers"])

    def score(*rows: str) -> tuple[int, str]:
        if rows:
            (tmp_path / "tool-calls-one.jsonl").write_text("\n".join(rows))
        return score_peers.main(), capsys.readouterr().out

    return score


CALL = '<tool_call>{"name": "look", "arguments": {}}</tool_call>'
RIGHT = [row("one", CALL, [["look", {}]])] * 9


def test_nothing_to_score_is_no_fault(scored: Any) -> None:
    code, said = scored()
    assert code == 0
    assert "nothing to score" in said


def test_a_new_false_call_misses_the_goal(scored: Any) -> None:
    assert scored(*RIGHT)[0] == 0
    code, said = scored(*RIGHT * 9, row("two", CALL, []))
    assert code == 1
    assert "false: two: NEW" in said


def test_a_known_one_is_named_with_its_reason(scored: Any) -> None:
    code, said = scored(*RIGHT * 9, row(KNOWN, CALL, [["look", {"at": 1}]]))
    assert code == 0
    assert f"wrong: {KNOWN}: {score_peers.KNOWN[KNOWN]}" in said


def test_too_many_unread_calls_miss_the_goal(scored: Any) -> None:
    assert scored(*RIGHT, row("three", "Nothing here.", [["look", {}]]))[0] == 1
