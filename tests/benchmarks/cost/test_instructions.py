"""What callgrind counted, and the table that is made of it."""

from __future__ import annotations

import pytest

from benchmarks.cost.contestants import FRAME, HTTPX, LITELLM, PROXY
from benchmarks.cost.instructions import arguments, table, total

WRITTEN = "version: 1\ncreator: callgrind-3.19.0\nevents: Ir\n\nfn=(1)\n12 34\ntotals: {}\n"


def test_the_total_of_a_file() -> None:
    assert total(WRITTEN.format(96_047_964)) == 96_047_964
    with pytest.raises(ValueError, match="no counts"):
        total("version: 1\n")


def test_the_table_has_multiples_of_the_relay() -> None:
    counts = {"plain": {HTTPX: 1_400_000.0, PROXY: 2_800_000.0}, "seen": {PROXY: 5_000_400.0}}
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in table(counts).splitlines()]
    assert rows[0][1:] == [HTTPX, PROXY]
    assert rows[2][1:] == ["1,400", "2,800 · 2.00 ×"]
    assert rows[3][1:] == ["–", "5,000"]


def test_what_is_measured_can_be_chosen(capsys: pytest.CaptureFixture[str]) -> None:
    assert [one.name for one in arguments([]).contestants] == [HTTPX, FRAME, PROXY, LITELLM]
    chosen = arguments(["--only", "proxy,httpx", "--kinds", "plain"])
    assert [one.name for one in chosen.contestants] == [HTTPX, PROXY]
    assert chosen.kinds == ["plain"]
    for wrong in (["--kinds", "stream"], ["--only", "nothing"]):
        with pytest.raises(SystemExit):
            arguments(wrong)
    assert "there are plain, call" in capsys.readouterr().err
