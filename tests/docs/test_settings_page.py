"""docs/settings.md is what the settings are; each default has a reason that was meant for it."""

from __future__ import annotations

import json
from typing import Any

import pytest

from mlx_stack_proxy import settings_source
from mlx_stack_proxy.settings import Settings
from scripts.settings_page import ANY, PAGE, Key, keys, page, reasons

KEYS = list(keys())
WITH_DEFAULT = [key for key in KEYS if key.place.get("default") is not None]
REASONS = reasons()
CLOUD = ("reliability", "escalation", "cloud_fallback")  # of which one key must be given


def value_at(settings: Settings, path: tuple[str, ...]) -> Any:
    found: Any = settings
    for name in path:
        found = found[name] if isinstance(found, dict) else getattr(found, name)
    return found


def test_the_page_is_the_one_that_is_made() -> None:
    assert PAGE.read_text("utf-8") == page(), "`make references` writes it anew"


def test_every_setting_has_a_reason() -> None:
    assert {key.name for key in KEYS} == set(REASONS)


@pytest.mark.parametrize("key", KEYS, ids=lambda key: key.name)
def test_the_reason_was_meant_for_this_default(key: Key) -> None:
    """Who changes a default says in docs/settings-reasons.yaml why."""
    assert REASONS[key.name]["for"] == key.place.get("default")
    assert REASONS[key.name]["why"].endswith(".")


@pytest.mark.parametrize("key", WITH_DEFAULT, ids=lambda key: key.name)
def test_the_variable_is_the_key(key: Key) -> None:
    default = key.place["default"]
    path = tuple("fast" if part == ANY else part for part in key.path)
    variable = key.variable.replace(f"__{ANY}__", "__FAST__")
    given = {variable: default if isinstance(default, str) else json.dumps(default)}
    if path[: len(CLOUD)] == CLOUD:
        given["MLX_STACK_RELIABILITY__ESCALATION__CLOUD_FALLBACK__MODEL"] = "some/model"
    sources = settings_source.read(None, given)
    assert sources.origin(path) == "environment"
    found = value_at(sources.settings(), path)
    assert (list(found) if isinstance(found, tuple) else found) == default


def test_what_needs_a_restart_is_said() -> None:
    said = {key.name for key in KEYS if key.needs_restart}
    assert {"server.port", "state.backend"} <= said
    assert said.isdisjoint({"observability.log_level", "reliability.escalation.chain"})
