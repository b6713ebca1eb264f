"""What `make limits` counts: honest text stays, loops go, and other limits say something else."""

from __future__ import annotations

from dataclasses import replace

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
