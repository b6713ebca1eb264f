"""The rows that can be left out, each by itself.

A format, a repair and a doubt are names that the stage of tool validation takes as ``off``; a
detector of loops is an entry of a table. The names of repairs are those that the docs promise.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal
from unittest import mock

from mlx_stack_proxy.engine.pipeline import Stage
from mlx_stack_proxy.loop_detection import detectors
from mlx_stack_proxy.loop_detection.generation import flow
from mlx_stack_proxy.settings import LoopDetectionSettings, Settings
from mlx_stack_proxy.stages import build
from mlx_stack_proxy.tool_validation.doubts import DOUBTS
from mlx_stack_proxy.tool_validation.formats.table import FORMATS
from mlx_stack_proxy.tool_validation.stage import UNOFFERED, ToolValidation
from mlx_stack_proxy.tool_validation.unread import UNREAD

Kind = Literal["format", "repair", "doubt", "across turns", "while writing"]
ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "tool-calls.md"
SEEN_PAGE = ROOT / "benchmarks" / "tool-calls.md"
_NAMES = re.compile(r"`([a-z][a-z0-9_]*)`")
_SEEN = re.compile(_NAMES.pattern + r" (\[[^\]\n]+\]\([^)\n]+\))")


@dataclass(frozen=True)
class Row:
    kind: Kind
    name: str

    @property
    def is_of_loops(self) -> bool:
        return self.kind in ("across turns", "while writing")

    @property
    def is_off_by_default(self) -> bool:
        """Whether it is a detector that has a section of the settings, which nothing sets."""
        return self.is_of_loops and getattr(LoopDetectionSettings(), self.name, ...) is None

    def stages(self, settings: Settings) -> list[Stage]:
        """The stages without this row, where it is one of tool validation."""
        built = list(build(settings))
        if self.is_of_loops:
            return built
        without = ToolValidation(settings, frozenset({self.name}))
        return [without if isinstance(one, ToolValidation) else one for one in built]

    @contextmanager
    def out(self) -> Iterator[None]:
        """Without this row, where it is a detector of loops; both tables are whole afterwards."""
        tables: dict[Kind, dict[Any, Any]] = {
            "across turns": detectors.DETECTORS,
            "while writing": flow.RULES,
        }
        table = tables.get(self.kind, {})
        others = {name: rule for name, rule in table.items() if name != self.name}
        with mock.patch.dict(table, others, clear=True):
            yield


def rows() -> list[Row]:
    """All of them, in the order of the kinds."""
    return [
        *(Row("format", name) for name in dict.fromkeys(one.name for one in FORMATS)),
        *(Row("repair", name) for name in repairs()),
        *(Row("doubt", name) for name in (*DOUBTS, UNREAD, UNOFFERED)),
        *(Row("across turns", name) for name in detectors.DETECTORS),
        *(Row("while writing", str(name)) for name in flow.RULES),
    ]


def repairs() -> list[str]:
    """The repairs in the table of docs/tool-calls.md."""
    text = PAGE.read_text("utf-8").partition("## What is repaired")[2].partition("\n## ")[0]
    cells = [line.split("|")[1] for line in text.splitlines() if line.startswith("| `")]
    return [name for cell in cells for name in _NAMES.findall(cell)]


def sources() -> dict[str, str]:
    """Where rules that no recorded case needs were seen: by name, the links of their page."""
    text = SEEN_PAGE.read_text("utf-8").partition("## Rules without a recorded case")[2]
    return dict(_SEEN.findall(text.partition("\n## ")[0]))
