"""The results of this benchmark: which of those on disk are of this code and these models."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from benchmarks.records import Results, fingerprint

from .columns import COLUMNS, Part

Json = dict[str, Any]
# What decides about a result: after a change of it, older ones are of something else.
_OURS = [
    *(f"benchmarks/agents/{name}.py" for name in ("agent", "broken", "kills", "relay", "stack")),
    "benchmarks/agents/tasks.py",
    "app/mlx_stack_proxy/operator/local_stack/*.py",  # how LiteLLM and the servers start
    "deploy/local/demo_tiers/*.py",
    "deploy/local/models/*/*.safetensors",
]
_PROXIED = ["app/**/*.py", "app/**/*.lua"]


class Records:
    """All results of one file that belong to this code, these models and this server."""

    def __init__(self, path: Path, about: Iterable[str]) -> None:
        self._results = Results(path)
        about = list(about)
        self._codes = {
            key: fingerprint([*about, column.first], _OURS + _PROXIED * column.proxied)
            for key, column in COLUMNS.items()
        }

    def read(self, part: Part) -> dict[int, Json]:
        """The results of a part by task."""
        return self._results.read(self._key(part))

    def add(self, part: Part, task: int, result: Json) -> None:
        self._results.add(self._key(part), task, result)

    def _key(self, part: Part) -> Json:
        return {"code": self._codes[part.column], **vars(part)}
