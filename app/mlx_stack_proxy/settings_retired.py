"""Old and foreign names of keys: which key of ours each means, and which mean nothing any more.

:func:`renamed` writes the names of ``OTHER_NAMES`` as our own, and :func:`without_retired` removes
the keys of rules that no longer exist, before pydantic checks the settings.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from copy import deepcopy
from typing import Any, Final

import orjson

_LOOPS = "reliability.loop_detection"
# The retired keys, in order; `*` stands for any name.
RETIRED: Final = (
    "server.max_buffered_bytes",
    "upstream.max_connections",
    "stream.hold_seconds",
    f"{_LOOPS}.compare",
    f"{_LOOPS}.max_period",
    f"{_LOOPS}.similar_replies.min_chars",
    f"{_LOOPS}.tool_calls.require_no_progress",
    f"{_LOOPS}.tool_calls.same_error_warn",
    f"{_LOOPS}.tool_calls.overrides.*.identical_warn",
    f"{_LOOPS}.tool_calls.overrides.*.same_error_warn",
    f"{_LOOPS}.tool_calls.overrides.*.name_cycle_warn",
    f"{_LOOPS}.tool_calls.overrides.*.name_cycle_hard",
    f"{_LOOPS}.generation.window_chars",
    f"{_LOOPS}.judge.first_interval",
    f"{_LOOPS}.judge.interval_min",
    f"{_LOOPS}.judge.interval_max",
    "reliability.escalation.foresee_above",
    "reliability.memory_pressure.hold_seconds",
    "reliability.memory_pressure.thresholds.some_warning_percent",
    "reliability.memory_pressure.thresholds.full_critical_percent",
    "reliability.memory_pressure.thresholds.limit_warning_share",
    "reliability.memory_pressure.thresholds.limit_critical_share",
    "reliability.memory_pressure.thresholds.swap_critical_bytes_per_second",
)
# Below `loop_detection`: a name of the original documents, or of version 0.1, and the key it means.
OTHER_NAMES: Final[dict[str, str]] = {
    "similarity_threshold": "similar_replies.similarity",
    "hard_limit": "identical_calls.hard",
    "cycle_min_len": "name_cycle.min_length",
    "cycle_max_len": "name_cycle.max_length",
    "cycle_repeats_warn": "name_cycle.warn",
    "cycle_repeats_hard": "name_cycle.hard",
    "tool_freq_warn": "tool_frequency.warn",
    "tool_freq_hard_limit": "tool_frequency.hard",
    "tool_freq_overrides": "tool_frequency.overrides",
    "tool_calls.key": "identical_calls.key",
    "tool_calls.identical_warn": "identical_calls.warn",
    "tool_calls.window": "identical_calls.window",
    "tool_calls.name_cycle_min_length": "name_cycle.min_length",
    "tool_calls.name_cycle_max_length": "name_cycle.max_length",
    "tool_calls.name_cycle_warn": "name_cycle.warn",
    "tool_calls.name_cycle_hard": "name_cycle.hard",
    "tool_calls.frequency_warn": "tool_frequency.warn",
    "tool_calls.frequency_hard": "tool_frequency.hard",
    "tool_calls.frequency_overrides": "tool_frequency.overrides",
}
# Keys that keep their own meaning, and also count where one of these names is given.
_ALSO: Final = {
    "similarity_threshold": {
        "window_size": "similar_replies.window",
        "duplicate_threshold": "similar_replies.threshold",
    },
    "tool_calls.identical_warn": {"tool_calls.identical_hard": "identical_calls.hard"},
}


def renamed(data: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, str]]:
    """Return the data with our own names for ``OTHER_NAMES``, and by our path the name given.

    A key that is given under our name, too, is the stronger one. Both paths are dotted.
    """
    names: dict[str, str] = {}
    loops = _get(data, *_LOOPS.split("."))
    if not isinstance(loops, Mapping):
        return dict(data), names
    own = deepcopy(dict(loops))
    for old, new in OTHER_NAMES.items():
        if (value := _get(loops, *old.split("."))) is None:
            continue
        for also, meant in _ALSO.get(old, {}).items():
            _set(own, _get(loops, *also.split(".")), *meant.split("."))
        *section, key = old.split(".")
        _get(own, *section).pop(key)
        if new.endswith("overrides"):
            value = _overrides(value)
        # Version 0.1 called `key: all` exact.
        _set(own, "all" if value == "exact" else value, *new.split("."))
        names[f"{_LOOPS}.{new}"] = f"{_LOOPS}.{old}"
    # Version 0.1 had one tool's numbers below `tool_calls.overrides`.
    tools = _get(own, "tool_calls", "overrides")
    for tool, numbers in tools.items() if isinstance(tools, Mapping) else ():
        for old, new in (("frequency_warn", "warn"), ("frequency_hard", "hard")):
            if isinstance(numbers, dict) and numbers.get(old) is not None:
                _set(own, numbers.pop(old), "tool_frequency", "overrides", tool, new)
                where = f"{_LOOPS}.tool_frequency.overrides.{tool}.{new}"
                names[where] = f"{_LOOPS}.tool_calls.overrides.{tool}.{old}"
    return {**data, "reliability": {**data["reliability"], "loop_detection": own}}, names


def _overrides(value: Any) -> Any:
    """Return numbers by tool, each given as ``{warn, hard_limit}``, or as a pair, in our form."""
    if isinstance(value, str):  # an environment variable
        try:
            value = orjson.loads(value)
        except ValueError:
            return value
    if not isinstance(value, Mapping):
        return value
    return {tool: _numbers(numbers) for tool, numbers in value.items()}


def _numbers(numbers: Any) -> Any:
    if isinstance(numbers, (list, tuple)) and len(numbers) == 2:
        return dict(zip(("warn", "hard"), numbers, strict=True))
    if not isinstance(numbers, Mapping):
        return numbers
    return {"hard" if key == "hard_limit" else key: value for key, value in numbers.items()}


def _get(section: Any, *path: str) -> Any:
    for key in path:
        section = section.get(key) if isinstance(section, Mapping) else None
    return section


def _set(section: dict[str, Any], value: Any, *path: str) -> None:
    """Set an absent key if there is a value; leave a malformed section alone."""
    *sections, key = path
    for name in sections if value is not None else ():
        if section.get(name) is None:
            section[name] = {}
        if not isinstance(section[name], dict):
            return
        section = section[name]
    if value is not None:
        section.setdefault(key, value)


def without_retired(data: Mapping[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """Return the data without retired keys, and the dotted paths of the removed ones."""
    kept = deepcopy(dict(data))
    return kept, [path for key in RETIRED for path in _taken_out(kept, key.split("."), "")]


def _taken_out(section: Any, path: list[str], prefix: str) -> Iterator[str]:
    """Delete the key at a path in a section; yield its whole path if it existed."""
    first, *below = path
    for key in [k for k in section if first in (k, "*")] if isinstance(section, dict) else ():
        if below:
            yield from _taken_out(section[key], below, f"{prefix}{key}.")
        else:
            del section[key]
            yield f"{prefix}{key}"
