"""What comes out without a row: of the recorded cases, and of real agents' runs.

The runs are replayed through a proxy that lacks the row, which this module runs, too:
python -m benchmarks.ablation.without KIND NAME mlx_stack_proxy serve --config FILE
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any
from unittest import mock

from benchmarks import servers
from benchmarks.ablation.rows import Row, rows
from benchmarks.measure import corpora, score, score_loops
from benchmarks.measure.corpora import CORPORA, LOOPS, TEXTS
from benchmarks.records import Json
from mlx_stack_proxy import stages
from mlx_stack_proxy.operator import cli
from tests.support.ports import free_port

SCRIPT = CORPORA / "trajectories" / "score.py"
# What is better smaller, of each form: the key among its figures.
_WORSE = ("lost", "changed", "false_breaks", "hints_outside", "hints_told_again")


def right(row: Row) -> set[str]:
    """The ids of the cases that come out right without a row, of those that it may be about."""
    if row.is_of_loops:
        with row.out():
            return loops()
    with mock.patch.object(score, "STAGES", row.stages(score.SETTINGS)):
        return tool_calls()


def tool_calls() -> set[str]:
    """Mutations, texts and reported shapes."""
    cases = [score.mutation(row) for row in corpora.rows(CORPORA / "mutations.jsonl")]
    cases += [score.text(row) for row in corpora.rows(TEXTS)]
    issues = corpora.rows(CORPORA / "issues_malformed.jsonl")
    reported = {row["id"] for row in issues if score.issue_miss(row) is None}
    return reported | {case.id for case in cases if not case.wrong}


def loops() -> set[str]:
    """Loops, and what only looks like one."""
    return {line["id"] for line, is_right, _ in score_loops.judged(LOOPS) if is_right}


def figures(row: Row | None, sample: int) -> Counter[str]:
    """What is lost, broken, told and missed in all forms together, fewer being better.

    ``sample``: one trajectory in so many, and all that hold a loop.
    """
    with tempfile.TemporaryDirectory() as folder:
        upstream, out = free_port(), Path(folder) / "figures.json"
        wrapper = ["benchmarks.ablation.without", row.kind, row.name] if row else []
        with servers.serve(_config(upstream), Path(folder), wrapper=wrapper) as proxy:
            asked = [f"--proxy={proxy.url}", f"--upstream-port={upstream}", f"--json={out}"]
            command = [sys.executable, str(SCRIPT), f"--sample={sample}", *asked]
            subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        whole = json.loads(out.read_text("utf-8"))
    found = Counter[str]()
    for form in whole["forms"].values():
        found.update({key: form[key] for key in _WORSE})
        ends = form["loops"]["all"]
        found.update(loops_missed=ends["missed"], loops_only_told=ends["told_only"])
    pointless = whole["forms"]["calls"]["second_opinions_pointless"]
    found.update(opinions_pointless=pointless, lost_to_a_limit=whole["total"]["lost_to_a_limit"])
    return found


def _config(upstream: int) -> Json:
    tier = {"context_window": 2_000_000, "max_concurrency": 64}
    return {
        "upstream": {"base_url": f"http://127.0.0.1:{upstream}"},
        "tiers": {name: {"model": name, **tier} for name in ("fast", "standard")},
        "reliability": {
            "escalation": {"degrade": {"failures": 1_000_000}},
            "memory_pressure": {"enabled": False},
        },
        "state": {"backend": "memory"},
        "observability": {"log_level": "error"},
    }


def main() -> int:
    """Run ``mlx-stack-proxy`` without one row."""
    kind, name = sys.argv[1:3]
    row = next(one for one in rows() if (one.kind, one.name) == (kind, name))
    sys.argv[1:4] = []
    build: Any = stages.build if row.is_of_loops else lambda settings, *_: row.stages(settings)
    with row.out(), mock.patch.object(stages, "build", build):
        return cli.main() or 0


if __name__ == "__main__":
    sys.exit(main())
