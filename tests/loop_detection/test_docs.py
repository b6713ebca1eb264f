"""docs/loops.md names every detector and setting, with the defaults there are."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

from mlx_stack_proxy.loop_detection.detectors import DETECTORS
from mlx_stack_proxy.loop_detection.repetition import NUMBERS
from mlx_stack_proxy.setting_types import keys_of
from mlx_stack_proxy.settings import (
    DEFAULT_TIERS,
    LoopDetectionSettings,
    LoopToolCallSettings,
    Settings,
)

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "loops.md").read_text(encoding="utf-8")
NAMED = set(re.findall(r"\b([a-z][a-z_]*)\b", " ".join(re.findall(r"`([^`\n]+)`", PAGE))))
# Described on their own pages or sections, or bounds that say themselves what they are.
ELSEWHERE = {"in_response", "generation", "judge", "max_sessions", "tool_calls", "overrides"}


@pytest.mark.parametrize("name", DETECTORS)
def test_every_detector_has_its_row(name: str) -> None:
    assert re.search(rf"^\| (?:… )?`{name}` \|", PAGE, re.MULTILINE)


def test_every_setting() -> None:
    ours = set(keys_of(LoopDetectionSettings)) | set(keys_of(LoopToolCallSettings))
    assert ours - ELSEWHERE - NAMED == set()


@pytest.mark.parametrize(
    ("row", "warn", "hard"),
    [
        ("`repetition", LoopDetectionSettings().warn_threshold, 3),
        (
            "… `numbers",
            LoopDetectionSettings().warn_threshold * NUMBERS,
            3 * NUMBERS,
        ),
    ],
)
def test_the_numbers_are_the_defaults(row: str, warn: int, hard: int | None) -> None:
    (line,) = re.findall(rf"^\| {row}` \|.*$", PAGE, re.MULTILINE)
    _, _, _, warns, breaks, *_ = line.split("|")
    assert re.search(rf"\b{warn}\b", warns)
    assert re.search(rf"\b{hard}\b" if hard else "never", breaks)


def test_the_example_is_a_configuration() -> None:
    (example,) = re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)
    settings = Settings(tiers=DEFAULT_TIERS, **yaml.safe_load(example))
    overrides = settings.reliability.loop_detection.tool_calls.overrides
    assert overrides["bash"].duplicate_threshold == 9
