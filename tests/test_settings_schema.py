"""The JSON Schema that ships: as the settings are, with what the example says of each key."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from jsonschema import Draft202012Validator

from mlx_stack_proxy.operator import cli
from mlx_stack_proxy.settings_source import SCHEMA, SettingsError, from_mapping
from scripts import settings_schema

REPOSITORY = Path(__file__).parent.parent
EXAMPLE = (REPOSITORY / "config.example.yaml").read_text(encoding="utf-8")
SHIPPED: dict[str, Any] = json.loads(SCHEMA.read_text(encoding="utf-8"))
CHECK = Draft202012Validator(SHIPPED)


def test_what_ships_is_what_the_settings_are() -> None:
    fresh = settings_schema.text_of(settings_schema.built(EXAMPLE))
    assert SCHEMA.read_text(encoding="utf-8") == fresh, "run `make schema`"


def test_it_is_a_schema() -> None:
    Draft202012Validator.check_schema(SHIPPED)


def test_the_command_prints_it(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["config", "schema"]) == 0
    assert json.loads(capsys.readouterr().out) == SHIPPED


def test_the_example_names_it_and_is_valid() -> None:
    named = re.search(r"^# yaml-language-server: \$schema=(\S+)$", EXAMPLE, re.MULTILINE)
    assert named is not None
    assert (REPOSITORY / named[1]).samefile(SCHEMA)
    CHECK.validate(yaml.safe_load(EXAMPLE))


@pytest.mark.parametrize(
    ("text", "right"),
    [
        ("server:", True),
        ("tiers: {fast: , big: {model: x}}", True),
        ("tiers: {premium: {local: false, tools: auto, params: {top_k: 3}}}", True),
        ("reliability: {escalation: {cloud_fallback: {model: m}}}", True),
        ("reliability: {loop_detection: {tool_calls: {overrides: {a: {window: 3}}}}}", False),
        ("reliability: {loop_detection: {similarity_threshold: 0.95, window_size: 10}}", True),
        ("reliability: {loop_detection: {similarity_threshold: 7}}", False),
        ("reliability: {loop_detection: {cycle_min_len: 2, tool_freq_hard_limit: 50}}", True),
        ("reliability: {loop_detection: {tool_freq_overrides: {bash: [100, 200]}}}", True),
        ("reliability: {loop_detection: {hard_limit: 5, max_tracked_threads: 100}}", True),
        ("reliability: {loop_detection: {preset: specification}}", True),
        ("reliability: {loop_detection: {preset: other}}", False),
        ("reliability: {loop_detection: {name_cycle: {min_length: 1}}}", False),
        ("state: {backend: redis, redis_url: 'redis://h:1/0'}", True),
        ("sever: {}", False),
        ("tiers: {fast: {modell: x}}", False),
        ("tiers: {'a b': {}}", False),
        ("tiers: {}", False),
        ("stream: {mode: life}", False),
        ("upstream: {base_url: 'localhost:4000'}", False),
        ("server: {port: 70000}", False),
        ("reliability: {escalation: {cloud_fallback: {}}}", False),
    ],
)
def test_it_allows_what_the_proxy_takes(text: str, right: bool) -> None:
    data = yaml.safe_load(text)
    try:
        from_mapping(data)
        taken = True
    except SettingsError:
        taken = False
    assert (CHECK.is_valid(data), taken) == (right, right)


def test_every_key_is_explained_but_those_of_one_tool_or_key() -> None:
    silent = {
        name
        for name, definition in SHIPPED["$defs"].items()
        for key in definition["properties"].values()
        if "description" not in key and "$ref" not in key
    }
    assert silent == {"LoopToolOverride", "ToolFrequencyOverride", "TokenLimits"}


def test_no_explanation_beside_a_key_goes_on_below_it() -> None:
    """What stands there would be taken for the next key's, and this one's would end midway."""
    assert re.findall(r"^ *\w+: .*  # .*\n {20,}# .*", EXAMPLE, re.MULTILINE) == []


def test_explanations_come_from_beside_or_above_a_key() -> None:
    text = """# the head of a file

a:
  # what b is,
  # and why
  b: 1
  #c: 2     # what c is
tiers:
  fast:
    model: x    # a name
  slow:
    model: y    # see `fast`
d: 4
"""
    assert settings_schema.explanations(text) == {
        ("a", "b"): "what b is, and why",
        ("a", "c"): "what c is",
        ("tiers", "*", "model"): "a name",
    }
