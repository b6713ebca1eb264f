"""What `make score` says of recorded cases of loops, at our limits and at others."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from benchmarks.measure import score_loops

Json = dict[str, Any]
CALL: Json = {"name": "search", "args": {"q": "x"}, "result": "nothing"}
SENTENCE = {"repeat": "This is said over and over. ", "times": 9}  # 252 characters


def line(kind: str, items: list[Any], expected: str, tier: str = "portable") -> Json:
    return {"id": "case", "kind": kind, "input": items, "expected": expected, "tier": tier}


LOOP = line("tool_sequence", [CALL] * 6, "loop")
TWICE = line("tool_sequence", [CALL] * 2, "no_loop")
SAID = line("content_stream", [SENTENCE], "no_loop")


def score(folder: Path, *lines: Json, options: tuple[str, ...] = ()) -> int:
    file = folder / "cases.jsonl"
    file.write_text("\n".join(map(json.dumps, lines)))
    return score_loops.main([str(file), *options])


def test_what_comes_out_right_is_counted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert score(tmp_path, LOOP, TWICE, SAID) == 0
    printed = capsys.readouterr().out
    assert "loops: tool_sequence   portable  2/2" in printed
    assert "loops: content_stream  portable  1/1" in printed


def test_a_portable_line_that_comes_out_wrong_is_an_error(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert score(tmp_path, {**LOOP, "expected": "no_loop"}) == 1
    assert "WRONG portable" in capsys.readouterr().out
    assert score(tmp_path, {**LOOP, "expected": "no_loop", "tier": "policy"}) == 0


@pytest.mark.parametrize(
    ("case", "options"),
    [
        (SAID, ("--set", "generation.min_laps=2", "--set", "generation.min_chars=100")),
        (LOOP, ("--set", "warn_threshold=9", "--set", "duplicate_threshold=9")),
    ],
)
def test_other_limits_say_something_else(
    tmp_path: Path, case: Json, options: tuple[str, ...]
) -> None:
    assert score(tmp_path, case) == 0
    assert score(tmp_path, case, options=options) == 1


def test_a_limit_that_there_is_none_of_is_said(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="no_such_limit"):
        score(tmp_path, LOOP, options=("--set", "no_such_limit=2"))
