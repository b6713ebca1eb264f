"""What `make limits` counts: honest text stays, loops go, and other limits say something else."""

from __future__ import annotations

import random
import re
from dataclasses import replace

import pytest

from benchmarks.measure import loop_limits
from benchmarks.measure.loop_limits import Loop
from mlx_stack_proxy.settings import LoopDetectionSettings

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


def test_each_row_is_at_the_value_that_it_names() -> None:
    (first, default), *others = loop_limits.variants()
    assert (first, default) == ("the defaults", DEFAULT)
    named = {
        f"`{name}: {value}`" for name, values in loop_limits.VALUES.items() for value in values
    }
    assert {name for name, _ in others} == named
    for said, given in others:
        name, value = said.strip("`").split(": ")
        assert given.generation == replace(DEFAULT.generation, **{name: int(value)})


def test_made_up_loops_have_the_lengths_that_are_asked_for() -> None:
    loops = loop_limits.made_up_loops([TABLE], random.Random(3))
    assert {len(loop.lap) for loop in loops} == set(loop_limits.LAPS)
    assert len(loops) == len(loop_limits.LAPS) * loop_limits.LOOPS
    assert all(loop.before + loop.lap in TABLE for loop in loops)


def test_the_report_has_a_row_for_each_value(monkeypatch: pytest.MonkeyPatch) -> None:
    files = [(".c", TABLE), (".txt", "the same line again\n" * 200)]
    monkeypatch.setattr(loop_limits, "LOOPS", 1)
    report = loop_limits.report(files, loop_limits.made_up_loops([TABLE], random.Random(3)))
    rows = re.findall(r"^\| (.*?) \| (.*?) \|", report, re.MULTILINE)
    assert ("the defaults", "**1** (1 .txt)") in rows
    assert {name for name, _ in loop_limits.variants()} <= {name for name, _ in rows}
