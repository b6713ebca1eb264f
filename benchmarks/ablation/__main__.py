"""What recorded cases lose without each format, repair, doubt and detector.

    make ablate                                # the corpora, in a minute or two
    make ablate ARGS=--trajectories            # also real agents' runs, for doubts and detectors
    make ablate ARGS="--part calls --write"    # one part; and its table into benchmarks/ablation.md

A row is ``proven`` where something is lost without it, and ``unproven`` where nothing is.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping
from pathlib import Path

from benchmarks import machine, pages, servers
from benchmarks.ablation import without
from benchmarks.ablation.rows import Row, rows, sources
from benchmarks.measure.corpora import CORPORA

PAGE = Path(__file__).resolve().parents[1] / "ablation.md"
SHOWN = 3  # ids of cases in a cell
PARTS = ("calls", "loops")  # each has a table of its own, and was measured by itself
HEAD = ("kind", "row", "cases lost without it", "cases that come right without it", "agents' runs")


def main() -> int:
    parser = machine.options("benchmarks.ablation", __doc__)
    parser.add_argument("--part", choices=PARTS, help="only rows of tool calls, or of loops")
    parser.add_argument("--kind", help="only rows of this kind: format, repair, doubt …")
    parser.add_argument("--trajectories", action="store_true", help="replay agents' runs, too")
    parser.add_argument("--sample", type=int, default=10, help="one run in so many (default: 10)")
    parser.add_argument("--write", action="store_true", help=f"write benchmarks/{PAGE.name} anew")
    options = parser.parse_args()
    servers.stop_with_us()
    if not CORPORA.is_dir():
        print("ablate: the recorded cases are not here, so there is nothing to leave out")
        return 0
    contents = {part: measured(options, part) for part in PARTS if options.part in (None, part)}
    tables = {f"ablation-{part}": table for part, table in contents.items()}
    pages.publish("benchmarks.ablation", tables, [PAGE] if options.write else [])
    return 0


def measured(options: argparse.Namespace, part: str) -> str:
    """The table of one part."""
    whole = without.loops() if part == "loops" else without.tool_calls()
    runs = without.figures(None, options.sample) if options.trajectories else {}
    found = []
    for row in rows():
        if options.kind in (None, row.kind) and row.is_of_loops == (part == "loops"):
            print(f"without {row.kind} {row.name} ...", file=sys.stderr)
            found.append(_line(row, whole, runs, options.sample))
    return pages.table(HEAD, found)


def _line(row: Row, whole: set[str], runs: Mapping[str, int], sample: int) -> list[str]:
    right = without.right(row)
    told = ""
    if runs and row.kind not in ("format", "repair"):
        told = difference(runs, without.figures(row, sample))
    lost = _few(whole - right)
    if not lost:
        why = "off by default, as the documents order it" if row.is_off_by_default else "unproven"
        where = f", {sources()[row.name]}" if why == "unproven" and row.name in sources() else ""
        lost = "none" if "+" in told else f"none: {why}{where}"
    return [row.kind, f"`{row.name}`", lost, _few(right - whole), told]


def difference(before: Mapping[str, int], after: Mapping[str, int]) -> str:
    """What changed in the figures, by their names: ``loops_missed +3``; more is worse."""
    changed = [(key, after[key] - count) for key, count in before.items() if after[key] != count]
    return ", ".join(f"{key} {by:+d}" for key, by in changed) or "the same"


def _few(ids: set[str]) -> str:
    more = f" ... ({len(ids)} in all)" if len(ids) > SHOWN else ""
    return ", ".join(sorted(ids)[:SHOWN]) + more


if __name__ == "__main__":
    sys.exit(main())
