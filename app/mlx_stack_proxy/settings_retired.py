"""Keys of rules that are gone: old files may have them, and they do nothing.

They are taken out before the settings are checked; the schema doesn't know them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

_LOOPS = "reliability.loop_detection"
# By the section in which they stood; `*` is any name.
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
    """The data without these keys, and the paths of those that were in it."""
    found: list[str] = []
    kept = dict(data)
    for section, keys in RETIRED.items():
        kept = _without(kept, section.split("."), keys, "", found)
    return kept, found


def _without(
    data: Any, section: list[str], keys: tuple[str, ...], at: str, found: list[str]
) -> Any:
    if not isinstance(data, Mapping):
        return data
    if not section:
        found += [at + key for key in keys if key in data]
        return {key: value for key, value in data.items() if key not in keys}
    first, *below = section
    return {
        key: _without(value, below, keys, f"{at}{key}.", found) if first in (key, "*") else value
        for key, value in data.items()
    }
