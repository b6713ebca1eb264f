"""Real agents' trajectories, replayed through a proxy that lacks a row.

The script beside the recorded runs does it all; this starts the proxy that it asks.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from benchmarks import servers
from benchmarks.ablation.rows import Row
from benchmarks.measure.corpora import CORPORA
from tests.support.ports import free_port

SCRIPT = CORPORA / "trajectories" / "score.py"
Json = dict[str, Any]
# What is better smaller, of each form: the key among its figures.
_WORSE = ("lost", "changed", "false_breaks", "hints_outside", "hints_told_again")


def figures(row: Row | None, sample: int) -> dict[str, int]:
    """What is lost, broken, told and missed in all forms together, fewer being better.

    ``sample``: one trajectory in so many, and all that hold a loop.
    """
    with tempfile.TemporaryDirectory() as folder:
        upstream, out = free_port(), Path(folder) / "figures.json"
        wrapper = ["benchmarks.ablation.proxy", row.kind, row.name] if row else []
        proxy = servers.serve(_config(upstream), Path(folder), wrapper=wrapper)
        try:
            asked = [f"--proxy={proxy.url}", f"--upstream-port={upstream}", f"--json={out}"]
            command = [sys.executable, str(SCRIPT), f"--sample={sample}", *asked]
            subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        finally:
            proxy.stop()
        return _summed(json.loads(out.read_text("utf-8")))


def _summed(whole: Json) -> dict[str, int]:
    found = dict.fromkeys(_WORSE, 0)
    missed = told = 0
    for form in whole["forms"].values():
        for key in _WORSE:
            found[key] += form[key]
        missed += form["loops"]["all"]["missed"]
        told += form["loops"]["all"]["told_only"]
    pointless = whole["forms"]["calls"]["second_opinions_pointless"]
    more = {"loops_missed": missed, "loops_only_told": told, "opinions_pointless": pointless}
    return {**found, **more, "lost_to_a_limit": whole["total"]["lost_to_a_limit"]}


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
