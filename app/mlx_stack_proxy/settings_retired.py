"""Keys of rules that are gone: they are accepted, for old files, and do nothing."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from .settings import Settings

_LOOPS = "reliability.loop_detection"
# By the section in which they stand; `*` is any name.
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


def retired(settings: Settings) -> list[str]:
    """The keys that do nothing any more and are set to something else than their default."""
    found: list[str] = []
    for path, keys in RETIRED.items():
        for place, one in _sections(settings, path.split(".")):
            given = [key for key in keys if getattr(one, key) != getattr(type(one)(), key)]
            found += [".".join((*place, key)) for key in given]
    return found


def _sections(whole: Any, path: list[str]) -> Iterator[tuple[tuple[str, ...], Any]]:
    """The sections at a path, in which ``*`` is any name, each with its own path."""
    if not path:
        yield (), whole
        return
    names = list(whole) if path[0] == "*" else path[:1]
    for name in names:
        inner = whole[name] if isinstance(whole, Mapping) else getattr(whole, name)
        for place, found in _sections(inner, path[1:]):
            yield (name, *place), found
