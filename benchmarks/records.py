"""Results on disk: one JSON line a task, so an interrupted run goes on where it was."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

Json = dict[str, Any]
ROOT = Path(__file__).resolve().parents[1]
PROXIED = ("app/**/*.py", "app/**/*.lua")  # what decides where the proxy is between


def fingerprint(about: Iterable[str], patterns: Iterable[str]) -> str:
    """A hash of ``about`` and of the files that decide about a result."""
    found = hashlib.sha256("\n".join(about).encode())
    for pattern in patterns:
        for path in sorted(ROOT.glob(pattern)):
            found.update(f"{path.relative_to(ROOT)}\n".encode() + path.read_bytes())
    return found.hexdigest()[:16]


class Results:
    """One file of them; several runs may share it."""

    def __init__(self, path: Path) -> None:
        self._path = path
        path.parent.mkdir(parents=True, exist_ok=True)

    def read(self, key: Mapping[str, Any]) -> dict[Any, Json]:
        """The results that have this key, by task."""
        if not self._path.exists():
            return {}
        found = {}
        with self._path.open(encoding="utf-8") as file:
            for line in file:
                try:
                    row = json.loads(line)
                except ValueError:  # cut off when the run was
                    continue
                if {name: row.get(name) for name in key} == key:
                    found[row["task"]] = row
        return found

    def first(self, key: Mapping[str, Any], count: int) -> dict[int, Json]:
        """Those of the first so many tasks."""
        found = self.read(key)
        return {task: found[task] for task in range(count) if task in found}

    def missing(self, key: Mapping[str, Any], count: int) -> list[int]:
        """Those of the first so many tasks that have no result."""
        found = self.read(key)
        return [task for task in range(count) if task not in found]

    def add(self, key: Mapping[str, Any], task: int | str, result: Json) -> None:
        row = {**key, "task": task, **result}
        # One write for one line: several runs may share the file.
        with self._path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(row, ensure_ascii=False) + "\n")
