"""Old and foreign names of keys: which key of ours each means, and which mean nothing any more.

:func:`renamed` writes the names of ``OTHER_NAMES`` as our own, and :func:`without_retired` removes
the keys of rules that no longer exist, before pydantic checks the settings.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import orjson

_LOOPS = "reliability.loop_detection"
# The retired keys by the section in which they stood; `*` in a section stands for any name.
RETIRED: Final[dict[str, tuple[str, ...]]] = {
    "stream": ("hold_seconds",),
    _LOOPS: ("compare",),
    f"{_LOOPS}.tool_calls": ("require_no_progress", "same_error_warn"),
    f"{_LOOPS}.tool_calls.overrides.*": (
        *("identical_warn", "same_error_warn", "name_cycle_warn", "name_cycle_hard"),
    ),
    f"{_LOOPS}.generation": ("window_chars",),
    f"{_LOOPS}.judge": ("first_interval", "interval_min", "interval_max"),
    "reliability.escalation": ("foresee_above",),
    "reliability.memory_pressure": ("hold_seconds",),
}
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
    reliability = data.get("reliability")
    loops = reliability.get("loop_detection") if isinstance(reliability, Mapping) else None
    if not isinstance(reliability, Mapping) or not isinstance(loops, Mapping):
        return dict(data), names
    own = _copied(loops)
    moves = [(old, new) for old, new in OTHER_NAMES.items() if _get(loops, old) is not None]
    for old, new in moves:
        for also, meant in _ALSO.get(old, {}).items():
            if (value := _get(loops, also)) is not None:
                _set(own, meant, value)
        section, _, key = old.rpartition(".")
        (own[section] if section else own).pop(key)
        value = _get(loops, old)
        _set(own, new, _overrides(value) if new.endswith("overrides") else _key(value))
        names[f"{_LOOPS}.{new}"] = f"{_LOOPS}.{old}"
    _move_tools(own, names)
    return {**data, "reliability": {**reliability, "loop_detection": own}}, names


def _move_tools(own: dict[str, Any], names: dict[str, str]) -> None:
    """Move one tool's numbers from where version 0.1 had them, below ``tool_calls.overrides``."""
    tools = _get(own, "tool_calls.overrides")
    for tool, numbers in tools.items() if isinstance(tools, Mapping) else ():
        for old, new in (("frequency_warn", "warn"), ("frequency_hard", "hard")):
            if isinstance(numbers, dict) and numbers.get(old) is not None:
                value = numbers.pop(old)
                _set(own, "tool_frequency.overrides", {})
                overrides = _get(own, "tool_frequency.overrides")
                if isinstance(overrides, dict) and isinstance(overrides.setdefault(tool, {}), dict):
                    overrides[tool].setdefault(new, value)
                where = f"{_LOOPS}.tool_frequency.overrides.{tool}.{new}"
                names[where] = f"{_LOOPS}.tool_calls.overrides.{tool}.{old}"


def _key(value: Any) -> Any:
    return "all" if value == "exact" else value  # as version 0.1 called it


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


def _copied(value: Any) -> Any:
    if not isinstance(value, Mapping):
        return value
    return {key: _copied(below) for key, below in value.items()}


def _get(section: Any, path: str) -> Any:
    for key in path.split("."):
        section = section.get(key) if isinstance(section, Mapping) else None
    return section


def _set(section: dict[str, Any], path: str, value: Any) -> None:
    """Set a key that isn't given; leave a section alone that is none."""
    *sections, key = path.split(".")
    for name in sections:
        if section.get(name) is None:
            section[name] = {}
        if not isinstance(section[name], dict):
            return
        section = section[name]
    section.setdefault(key, value)


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
