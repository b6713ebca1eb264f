"""Results on disk: one JSON line a task, so an interrupted run goes on where it was."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from .columns import COLUMNS, Column, Part

Json = dict[str, Any]
ROOT = Path(__file__).resolve().parents[2]
_HERE = "benchmarks/agents"
# What decides about a result: after a change of it, older ones are of something else.
_OURS = [f"{_HERE}/{name}.py" for name in ("agent", "broken", "kills", "relay", "stack", "tasks")]
_PROXIED = [f"{_HERE}/proxied.py", "app/**/*.py", "app/**/*.lua"]
_DEMO = [
    "app/mlx_stack_proxy/operator/local_stack/*.py",  # how LiteLLM and the servers start
    "deploy/local/demo_tiers/*.py",
    "deploy/local/models/*/*.safetensors",
]


def fingerprint(column: Column, about: Iterable[str]) -> str:
    """A hash of ``about``, the column, and the files that decide: the proxy's where it is asked."""
    proxied = column.changes is not None
    patterns = [*_OURS, *_DEMO, *(_PROXIED if proxied else [])]
    found = hashlib.sha256("\n".join([*about, column.first, str(column.changes)]).encode())
    for pattern in patterns:
        for path in sorted(ROOT.glob(pattern)):
            found.update(f"{path.relative_to(ROOT)}\n".encode() + path.read_bytes())
    return found.hexdigest()[:16]


class Records:
    """All results of one file that belong to this code, these models and this server."""

    def __init__(self, path: Path, about: Iterable[str]) -> None:
        self._path = path
        about = list(about)
        self._prints = {key: fingerprint(column, about) for key, column in COLUMNS.items()}
        path.parent.mkdir(parents=True, exist_ok=True)

    def read(self, part: Part) -> dict[int, Json]:
        """The results of a part by task."""
        wanted = self._key(part)
        if not self._path.exists():
            return {}
        found = {}
        with self._path.open(encoding="utf-8") as file:
            for line in file:
                try:
                    row = json.loads(line)
                except ValueError:  # cut off when the run was
                    continue
                if {key: row.get(key) for key in wanted} == wanted:
                    found[row["task"]] = row
        return found

    def add(self, part: Part, task: int, result: Json) -> None:
        row = {**self._key(part), "task": task, **result}
        # One write for one line: several runs may share the file.
        with self._path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(row, ensure_ascii=False) + "\n")

    def _key(self, part: Part) -> Json:
        return {
            "code": self._prints[part.column],
            "column": part.column,
            "seed": part.seed,
            "faults": part.faults,
        }
