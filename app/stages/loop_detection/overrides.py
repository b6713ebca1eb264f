"""How often is too often, for these tools: the settings' numbers, and a tool's own.

Where several tools are in question the most patient one's numbers count.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from ...core.call_keys import Call
from ...core.turns import MAX_TURNS
from ...settings import LoopDetectionSettings, LoopToolOverride

Thresholds = tuple[int, int]  # warn, break


def repetition(tools: Iterable[str], rules: LoopDetectionSettings) -> Thresholds:
    """Laps."""
    common = rules.warn_threshold, rules.duplicate_threshold
    return _most(tools, rules, common, lambda own: (own.warn_threshold, own.duplicate_threshold))


def identical_calls(tools: Iterable[str], rules: LoopDetectionSettings) -> Thresholds:
    """Same calls."""
    common = rules.tool_calls.identical_warn, rules.tool_calls.identical_hard
    return _most(tools, rules, common, lambda own: (own.identical_warn, own.identical_hard))


def window(calls: Sequence[Call], rules: LoopDetectionSettings) -> int:
    """How many turns back these calls are looked for: so many that their numbers can be reached."""
    _, hard = identical_calls([call.name for call in calls], rules)
    return _reaching(rules.tool_calls.window, hard)


def widest_window(rules: LoopDetectionSettings) -> int:
    """The most turns back that any calls are looked for."""
    calls = rules.tool_calls
    own = [one.identical_hard or 0 for one in calls.overrides.values()] if calls.overrides else ()
    return _reaching(calls.window, calls.identical_hard, *own)


def _reaching(window: int, *limits: int) -> int:
    # What is more than a history has is there to silence the detector.
    highest = max(limits)
    if highest <= window:
        return window
    return max([window, *(limit for limit in limits if limit <= MAX_TURNS)])


def fewest_identical(rules: LoopDetectionSettings) -> int:
    """The least number of same calls at which any calls are broken."""
    calls = rules.tool_calls
    own = [one.identical_hard or MAX_TURNS for one in calls.overrides.values()]
    return min([calls.identical_hard, *own])


def breaks_at_once(rules: LoopDetectionSettings) -> bool:
    """Whether a limit is so low that a call may be broken whatever came before it."""
    calls = rules.tool_calls
    limits = [calls.identical_hard, calls.frequency_hard, calls.name_cycle_hard]
    limits += [older.hard for older in calls.frequency_overrides.values()]
    for own in calls.overrides.values():
        limits += [own.identical_hard or 0, own.frequency_hard or 0, own.name_cycle_hard or 0]
    return 1 in limits


def frequency(tool: str, rules: LoopDetectionSettings) -> Thresholds:
    """Calls of one tool. ``frequency_overrides`` is an older place for the same."""
    calls = rules.tool_calls
    common = calls.frequency_warn, calls.frequency_hard
    if not calls.frequency_overrides and not calls.overrides:
        return common
    if older := calls.frequency_overrides.get(tool):
        common = older.warn, older.hard
    return _most((tool,), rules, common, lambda own: (own.frequency_warn, own.frequency_hard))


def name_cycle(tools: Iterable[str], rules: LoopDetectionSettings) -> Thresholds:
    """Laps."""
    common = rules.tool_calls.name_cycle_warn, rules.tool_calls.name_cycle_hard
    return _most(tools, rules, common, lambda own: (own.name_cycle_warn, own.name_cycle_hard))


def fewest_laps(rules: LoopDetectionSettings) -> int:
    """The least number of laps of a circle of names at which anything is said."""
    calls = rules.tool_calls
    laps = [calls.name_cycle_warn, calls.name_cycle_hard]
    for own in calls.overrides.values():
        laps += [own.name_cycle_warn or laps[0], own.name_cycle_hard or laps[1]]
    return min(laps)


def same_error(tool: str, rules: LoopDetectionSettings) -> int:
    """Times one error comes."""
    own = rules.tool_calls.overrides.get(tool)
    given = own.same_error_warn if own is not None else None
    return rules.tool_calls.same_error_warn if given is None else given


def _most(
    tools: Iterable[str],
    rules: LoopDetectionSettings,
    common: Thresholds,
    read: Callable[[LoopToolOverride], tuple[int | None, int | None]],
) -> Thresholds:
    given = rules.tool_calls.overrides
    if not given:
        return common
    found = []
    for tool in tools:
        own = read(given[tool]) if tool in given else (None, None)
        found.append(tuple(common[i] if n is None else n for i, n in enumerate(own)))
    if not found:
        return common
    return max(warn for warn, _ in found), max(hard for _, hard in found)
