"""Keys of rules that no longer exist: old files may still have them, and they have no effect.

:func:`without_retired` removes them before pydantic checks the settings; the schema has none.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

_LOOPS = "reliability.loop_detection"
# The retired keys by the section in which they stood; `*` in a section stands for any name.
RETIRED: Final[dict[str, tuple[str, ...]]] = {
    "stream": ("hold_seconds",),
    _LOOPS: ("similarity_threshold", "compare"),
    f"{_LOOPS}.tool_calls": (
        *("key", "identical_warn", "window", "require_no_progress", "same_error_warn"),
        *("frequency_warn", "frequency_hard", "frequency_overrides"),
        *("name_cycle_min_length", "name_cycle_max_length", "name_cycle_warn", "name_cycle_hard"),
    ),
    f"{_LOOPS}.tool_calls.overrides.*": (
        *("identical_warn", "frequency_warn", "frequency_hard", "same_error_warn"),
        *("name_cycle_warn", "name_cycle_hard"),
    ),
    "reliability.escalation": ("foresee_above",),
}


def without_retired(data: Mapping[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """Return the data without the retired keys, and the dotted paths of those it had."""
    paths: list[str] = []
    kept = dict(data)
    for section, keys in RETIRED.items():
        kept = _without(kept, section.split("."), keys, "", paths)
    return kept, paths


def _without(
    data: Any, section: list[str], keys: tuple[str, ...], prefix: str, paths: list[str]
) -> Any:
    """Return ``data`` without ``keys`` below ``section``; add each removed key to ``paths``."""
    if not isinstance(data, Mapping):
        return data
    if not section:
        paths += [prefix + key for key in keys if key in data]
        return {key: value for key, value in data.items() if key not in keys}
    first, *below = section
    return {
        key: _without(value, below, keys, f"{prefix}{key}.", paths)
        if first in (key, "*")
        else value
        for key, value in data.items()
    }
