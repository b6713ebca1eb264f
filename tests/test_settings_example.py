"""config.example.yaml holds every key, with its default, explained."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any, get_args

import yaml

from mlx_stack_proxy.setting_types import keys_of
from mlx_stack_proxy.settings import DEFAULT_TIERS, Settings, TierSettings
from mlx_stack_proxy.settings_source import from_mapping

Json = dict[str, Any]
EXAMPLE = Path(__file__).parent.parent / "config.example.yaml"


def leaves(model: type, prefix: str = "") -> Iterator[str]:
    """The paths of all keys of the schema; tiers are walked by one of them."""
    for name, field in keys_of(model).items():
        path = f"{prefix}{name}"
        if path == "tiers":
            yield from leaves(TierSettings, "tiers.fast.")
            continue
        annotation = field.annotation
        inner = [kind for kind in (annotation, *get_args(annotation)) if keys_of(kind)]
        if inner and not isinstance(field.default, dict):
            yield from leaves(inner[0], f"{path}.")
        else:
            yield path


def flat(data: Any, prefix: str = "", stops: frozenset[str] = frozenset()) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in data.items():
        path = f"{prefix}{key}"
        if isinstance(value, dict) and value and path not in stops:
            found |= flat(value, f"{path}.", stops)
        else:
            found[path] = value
    return found


def example(uncommented: bool) -> Json:
    text = EXAMPLE.read_text(encoding="utf-8")
    if uncommented:  # prose has one blank behind its `#`, keys none and their own keys three
        text = re.sub(r"^(\s*)#(?=[a-z_]+:|  )", r"\1", text, flags=re.MULTILINE)
    data: Json = yaml.safe_load(text)
    return data


OTHER_TIERS = {
    f"tiers.{tier}.{key}" for tier, keys in DEFAULT_TIERS.items() for key in keys if tier != "fast"
}


def test_the_example_is_the_defaults() -> None:
    assert from_mapping(example(uncommented=False)) == from_mapping({})


def test_the_example_holds_every_key_and_no_other() -> None:
    assert set(flat(example(uncommented=True))) == set(leaves(Settings)) | OTHER_TIERS


def test_only_what_has_no_default_is_commented_out() -> None:
    shown = set(flat(example(uncommented=False)))
    hidden = set(flat(example(uncommented=True))) - shown
    defaults = asdict(from_mapping({}))
    for path in hidden:
        value: Any = defaults
        for key in path.split("."):
            value = value[key] if value is not None else None
        assert value is None, path


def test_the_example_uncommented_is_valid_and_gives_consent_its_defaults() -> None:
    found = from_mapping(example(uncommented=True))
    fallback = found.reliability.escalation.cloud_fallback
    assert fallback is not None
    assert fallback == type(fallback)(model=fallback.model)
    assert found.server.admin_key and found.state.redis_url and found.tiers["fast"].health_url


def test_every_key_of_the_example_is_explained() -> None:
    lines = EXAMPLE.read_text(encoding="utf-8").splitlines()
    for before, line in zip(["", *lines], lines, strict=False):
        if re.match(r"\s*(#|#  +)?[a-z_]+: +\S", line):
            assert "  # " in line or before.strip().startswith("# "), line
