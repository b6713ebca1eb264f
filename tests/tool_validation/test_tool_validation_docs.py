"""docs/tool-calls.md names every rule, format and failure that a metric can name."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from benchmarks.ablation.rows import repairs, sources
from mlx_stack_proxy.setting_types import keys_of
from mlx_stack_proxy.settings import ToolValidationSettings
from mlx_stack_proxy.tool_validation.formats.table import FORMATS
from mlx_stack_proxy.tool_validation.tools import NAME_DECORATIONS
from mlx_stack_proxy.wire.json_reader import LENIENCIES

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "tool-calls.md").read_text(encoding="utf-8")
NAMED = set(re.findall(r"`([a-z][a-z0-9_]*)`", PAGE))
PACKAGE = ROOT / "app" / "mlx_stack_proxy"
READERS = [PACKAGE / "wire" / name for name in ("json_text.py", "json_reader.py")]
SOURCES = {
    path: path.read_text(encoding="utf-8")
    for path in (*sorted((PACKAGE / "tool_validation").rglob("*.py")), *READERS)
}
# How the code names a rule, and a kind of failure.
RULE = re.compile(
    r"(?:rules\.append\(|repairs\.append\(|rules\[|rules = (?:\[\] .*)?\["
    r"|_with_rules\([\[(](?:\*.*, )?)"
    r'"([a-z_]+)"'
)
KIND = re.compile(r'(?:Unreadable\(|Failure\([^"]*|label.* = |return )\s*"([a-z_]+)"(?:,|$)', re.M)


def found(pattern: re.Pattern[str]) -> set[str]:
    return {name for text in SOURCES.values() for name in pattern.findall(text)}


@pytest.mark.parametrize("name", sorted({one.name for one in FORMATS}))
def test_every_format(name: str) -> None:
    assert name in NAMED


def test_every_rule() -> None:
    rules = found(RULE) | NAME_DECORATIONS.keys() | LENIENCIES.keys()
    assert {"trailing_comma", "double_encoded", "enum_spelling", "name_marker"} <= rules
    assert rules - NAMED == set()


def test_every_kind_of_failure() -> None:
    kinds = found(KIND)
    assert {"invalid_json", "missing_required", "lost_call", "placeholder"} <= kinds | NAMED
    assert kinds - NAMED == set()


def test_every_setting() -> None:
    fields = set(keys_of(ToolValidationSettings)) - {"enabled"}
    assert {name for name in fields if not re.search(rf"`{name}\b", PAGE)} == set()


def test_every_rule_without_a_recorded_case_names_who_writes_so() -> None:
    table = (ROOT / "benchmarks" / "ablation.md").read_text(encoding="utf-8").splitlines()
    unproven = [line.split("`")[1] for line in table if "none: unproven" in line]
    promised = [name for name in unproven if name in {*repairs(), *(one.name for one in FORMATS)}]
    assert promised
    assert set(promised) - sources().keys() == set()
