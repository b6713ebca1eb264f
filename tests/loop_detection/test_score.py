"""What `make score` and `make limits` say of loops."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from benchmarks.measure import loop_limits, score_loops
from benchmarks.measure.loop_limits import Loop
from mlx_stack_proxy.settings import LoopDetectionSettings

Json = dict[str, Any]
CALL: Json = {"name": "search", "args": {"q": "x"}, "result": "nothing"}
SENTENCE = {"repeat": "This is said over and over. ", "times": 9}  # 252 characters


def line(kind: str, items: list[Any], expected: str) -> Json:
    return {"id": "case", "kind": kind, "input": items, "expected": expected, "tier": "portable"}


LOOP = line("tool_sequence", [CALL] * 6, "loop")
TWICE = line("tool_sequence", [CALL] * 2, "no_loop")
SAID = line("content_stream", [SENTENCE], "no_loop")


def score(folder: Path, *lines: Json) -> int:
    file = folder / "cases.jsonl"
    file.write_text("\n".join(map(json.dumps, lines)))
    return score_loops.main([str(file)])


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


# What `make limits` counts: honest text stays, loops go

DEFAULT = LoopDetectionSettings()
TABLE = "\n".join(f"    {{{number}, 0x{number * 7919:04x}}}," for number in range(400))


def rules(**generation: int) -> LoopDetectionSettings:
    return LoopDetectionSettings(generation=replace(DEFAULT.generation, **generation))


def test_a_loop_is_cut_and_a_table_is_not() -> None:
    assert loop_limits.cuts_text(DEFAULT, TABLE) is None
    assert loop_limits.cuts_argument(DEFAULT, TABLE) is None
    assert loop_limits.cuts_text(DEFAULT, TABLE + "\nand again the same" * 60) is not None
    assert loop_limits.cuts_argument(DEFAULT, TABLE + " " * 2000) is not None


def test_a_loop_is_followed_from_where_it_begins() -> None:
    loop = Loop("Something else comes first. " * 3, "It says this sentence, over and over. ")
    sooner = loop_limits.cut_after(rules(min_laps=3, min_chars=150), loop)
    later = loop_limits.cut_after(rules(min_laps=20, min_chars=1600), loop)
    assert sooner is not None
    assert later is not None
    assert sooner < later < loop_limits.ENDLESS
