"""Other names of keys: those of the original documents, and of version 0.1."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from mlx_stack_proxy.settings_source import SettingsError, from_mapping, read
from tests.settings_problems import at

Json = dict[str, Any]
LOOPS = "reliability.loop_detection"
FLAT: dict[str, tuple[Json, Json]] = {
    "001, similarity": (
        {"window_size": 12, "similarity_threshold": 0.9, "duplicate_threshold": 4},
        {"similar_replies": {"similarity": 0.9, "window": 12, "threshold": 4}},
    ),
    "002": (
        {
            "cycle_min_len": 3,
            "cycle_max_len": 5,
            "cycle_repeats_warn": 2,
            "cycle_repeats_hard": 6,
        },
        {"name_cycle": {"min_length": 3, "max_length": 5, "warn": 2, "hard": 6}},
    ),
    "003, calls": ({"hard_limit": 7}, {"identical_calls": {"hard": 7}}),
    "003, frequency": (
        {
            "tool_freq_warn": 10,
            "tool_freq_hard_limit": 20,
            "tool_freq_overrides": {"bash": [100, 200], "read": {"warn": 3, "hard_limit": 9}},
        },
        {
            "tool_frequency": {
                "warn": 10,
                "hard": 20,
                "overrides": {
                    "bash": {"warn": 100, "hard": 200},
                    "read": {"warn": 3, "hard": 9},
                },
            }
        },
    ),
    "0.1, calls": (
        {"tool_calls": {"key": "exact", "identical_warn": 2, "identical_hard": 6, "window": 9}},
        {"identical_calls": {"key": "all", "warn": 2, "hard": 6, "window": 9}},
    ),
    "0.1, cycles": (
        {
            "tool_calls": {
                "name_cycle_min_length": 3,
                "name_cycle_max_length": 5,
                "name_cycle_warn": 2,
                "name_cycle_hard": 6,
            }
        },
        {"name_cycle": {"min_length": 3, "max_length": 5, "warn": 2, "hard": 6}},
    ),
    "0.1, frequency": (
        {
            "tool_calls": {
                "frequency_warn": 10,
                "frequency_hard": 20,
                "frequency_overrides": {"read": {"hard": 9}},
                "overrides": {"bash": {"frequency_warn": 100, "frequency_hard": 200}},
            }
        },
        {
            "tool_frequency": {
                "warn": 10,
                "hard": 20,
                "overrides": {"bash": {"warn": 100, "hard": 200}, "read": {"hard": 9}},
            }
        },
    ),
    "both names: ours is the stronger": (
        {"hard_limit": 7, "identical_calls": {"hard": 9}},
        {"identical_calls": {"hard": 9}},
    ),
}


@pytest.mark.specification(31, 122, 149, 151)
@pytest.mark.parametrize("name", FLAT)
def test_other_names_of_the_detectors_keys(name: str) -> None:
    given, meant = FLAT[name]
    found = from_mapping(at(LOOPS, given)).reliability.loop_detection
    ours = from_mapping(at(LOOPS, meant)).reliability.loop_detection
    for section in meant:
        assert getattr(found, section) == getattr(ours, section)
    assert found.window_size == given.get("window_size", 10), "it keeps its own meaning"


@pytest.mark.specification(31)
@pytest.mark.parametrize("value", [7, -0.1, "abc"])
def test_a_likeness_out_of_range_is_refused_by_the_name_that_was_given(value: Any) -> None:
    with pytest.raises(SettingsError, match=rf"{LOOPS}\.similarity_threshold: .* {value!r}"):
        from_mapping(at(LOOPS, {"similarity_threshold": value}))


def test_another_name_in_the_environment_is_stronger_than_the_file(tmp_path: Path) -> None:
    file = tmp_path / "config.yaml"
    file.write_text("reliability: {loop_detection: {name_cycle: {hard: 9, warn: 2}}}")
    prefix = "MLX_STACK_RELIABILITY__LOOP_DETECTION__"
    overrides = {f"{prefix}TOOL_FREQ_OVERRIDES": '{"bash": [1, 2]}'}
    sources = read(str(file), {f"{prefix}CYCLE_REPEATS_HARD": "5", **overrides})
    found = sources.settings().reliability.loop_detection
    assert found.name_cycle is not None
    assert found.tool_frequency is not None
    assert (found.name_cycle.hard, found.name_cycle.warn) == (5, 2)
    assert found.tool_frequency.overrides["bash"].hard == 2
    path = ("reliability", "loop_detection", "name_cycle")
    assert sources.origin((*path, "hard")) == "environment"
    assert sources.origin((*path, "warn")) == "file"
    with pytest.raises(SettingsError, match="cycle_repeats_hard"):
        read(str(file), {f"{prefix}CYCLE_REPEATS_HARD": "1"}).settings()


def test_a_section_that_is_none_is_said() -> None:
    with pytest.raises(SettingsError, match="name_cycle: must be a mapping of keys"):
        from_mapping(at(LOOPS, {"name_cycle": 3, "cycle_min_len": 2}))


def test_the_specifications_preset_gives_way_to_what_is_given() -> None:
    given = {"preset": "specification", "name_cycle": {"hard": 9}, "duplicate_threshold": 3}
    found = from_mapping(at(LOOPS, given)).reliability.loop_detection
    assert found.name_cycle is not None
    assert found.identical_calls is not None
    assert (found.name_cycle.warn, found.name_cycle.hard) == (3, 9)
    assert (found.identical_calls.warn, found.identical_calls.hard) == (3, 5)
    assert (found.duplicate_threshold, found.second_opinion) == (3, False)
    assert from_mapping({}).reliability.loop_detection.identical_calls is None
