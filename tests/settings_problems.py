"""Settings that are refused, and what is said of them."""

from __future__ import annotations

from typing import Any

import pytest

from mlx_stack_proxy.settings_source import SettingsError, from_mapping, load

Json = dict[str, Any]


def at(path: str, value: Any) -> Json:
    """{"a": {"b": value}} for "a.b"."""
    for key in reversed(path.split(".")):
        value = {key: value}
    whole: Json = value
    return whole


def problems(data: Json) -> list[str]:
    with pytest.raises(SettingsError) as caught:
        from_mapping(data)
    return caught.value.problems


def environment_problems(**variables: str) -> str:
    with pytest.raises(SettingsError) as caught:
        load(None, {f"MLX_STACK_{key}": value for key, value in variables.items()})
    return "\n".join(caught.value.problems)
