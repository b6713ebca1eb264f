"""What is written into documents: between markers, and without a folder of this machine."""

from __future__ import annotations

import importlib.util
import re
from argparse import Namespace
from collections.abc import Callable
from pathlib import Path

import pytest

from benchmarks import machine, pages
from benchmarks.agents import report as of_agents
from benchmarks.clients import report as of_clients
from benchmarks.cost import __main__ as cost
from benchmarks.cost import instructions
from benchmarks.cost import report as of_costs
from benchmarks.measure import bench_state, loop_limits
from benchmarks.real_models import __main__ as real_models
from benchmarks.real_models import report as of_real_models
from benchmarks.records import ROOT


def test_a_page_gets_what_is_between_its_markers(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("before\n<!-- cost:begin -->\nold\n<!-- cost:end -->\nafter\n")
    assert pages.write(page, {"cost": "    new\n", "cost-short": "short"}) == ["cost"]
    assert "-->\n    new\n<!--" in page.read_text()
    page.write_text("nothing to replace")
    with pytest.raises(ValueError, match="none of the markers"):
        pages.write(page, {"cost": "new"})
    assert page.read_text() == "nothing to replace"


@pytest.mark.parametrize(
    ("page", "marker"),
    [
        ("benchmarks/agents.md", of_agents.MARKER),
        ("benchmarks/clients.md", of_clients.MARKER),
        ("benchmarks/loops.md", loop_limits.MARKER),
        ("benchmarks/performance.md", of_costs.MARKER),
        ("benchmarks/performance.md", instructions.MARKER),
        ("benchmarks/performance.md", bench_state.MARKER),
        ("benchmarks/real-models.md", of_real_models.MARKER),
        ("README.md", of_real_models.MARKER_SHORT),
    ],
)
def test_the_pages_that_are_written_have_the_markers(
    page: str, marker: str, tmp_path: Path
) -> None:
    copied = tmp_path / "page.md"
    copied.write_text((ROOT / page).read_text())
    assert pages.write(copied, {marker: "x"}) == [marker]


@pytest.mark.parametrize("arguments", [real_models.arguments, cost.arguments])
def test_a_short_run_overwrites_no_page(arguments: Callable[[list[str]], Namespace]) -> None:
    """As one did, whose single question took the place of a hundred."""
    assert arguments([]).write == []


GONE = {"workers", "simulation", "simulation-real"}  # by programs of an earlier commit
MARKED = re.compile(r"<!-- ([\w-]+):begin -->\n    command +(?:make ([\w-]+)|python -m ([\w.]+))")


def test_the_command_over_a_table_is_there() -> None:
    makefile = (ROOT / "Makefile").read_text("utf-8")
    texts = [page.read_text("utf-8") for page in ROOT.glob("benchmarks/*.md")]
    found = [one for text in texts for one in MARKED.findall(text)]
    assert len(found) > len(GONE) + 5
    for marker, target, module in found:
        if marker not in GONE:
            assert importlib.util.find_spec(module or "benchmarks"), marker
            assert not target or f"\n{target}:" in makefile, marker


def test_a_command_names_no_folder_of_this_machine(tmp_path: Path) -> None:
    typed = ["--json", str(tmp_path / "found.json"), "--write", "docs/a.md", "--only", "a,b"]
    told = machine.command("benchmarks.cost", typed)
    assert told == "python -m benchmarks.cost --json FILE --write docs/a.md --only a,b"
