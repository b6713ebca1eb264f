"""The results of this benchmark: which of those on disk are of this code and these models."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from benchmarks.records import ROOT, Results, fingerprint

from .columns import COLUMNS, Column, Part

__all__ = ["ROOT", "Records"]

Json = dict[str, Any]
_HERE = "benchmarks/agents"
# What decides about a result: after a change of it, older ones are of something else.
_OURS = [f"{_HERE}/{name}.py" for name in ("agent", "broken", "kills", "relay", "stack", "tasks")]
_PROXIED = [f"{_HERE}/proxied.py", "app/**/*.py", "app/**/*.lua"]
_DEMO = [
    "app/mlx_stack_proxy/operator/local_stack/*.py",  # how LiteLLM and the servers start
    "deploy/local/demo_tiers/*.py",
    "deploy/local/models/*/*.safetensors",
]


class Records:
    """All results of one file that belong to this code, these models and this server."""

    def __init__(self, path: Path, about: Iterable[str]) -> None:
        self._results = Results(path)
        about = list(about)
        self._prints = {key: _print(column, about) for key, column in COLUMNS.items()}

    def read(self, part: Part) -> dict[int, Json]:
        """The results of a part by task."""
        return self._results.read(self._key(part))

    def add(self, part: Part, task: int, result: Json) -> None:
        self._results.add(self._key(part), task, result)

    def _key(self, part: Part) -> Json:
        return {
            "code": self._prints[part.column],
            "column": part.column,
            "seed": part.seed,
            "faults": part.faults,
        }


def _print(column: Column, about: Iterable[str]) -> str:
    """Of ``about``, the column, and the files that decide: the proxy's where it is asked."""
    patterns = [*_OURS, *_DEMO, *(_PROXIED if column.changes is not None else [])]
    return fingerprint([*about, column.first, str(column.changes)], patterns)
