"""How often is too often, for these tools: the settings' numbers, and a tool's own.

Where several tools are in question the most patient one's numbers count.
"""

from __future__ import annotations

from collections.abc import Iterable

from ..settings import LoopDetectionSettings


def repetition(tools: Iterable[str], rules: LoopDetectionSettings) -> tuple[int, int]:
    """Laps until the hint and until the break."""
    warn = _most(tools, rules, "warn_threshold", rules.warn_threshold)
    return warn, _most(tools, rules, "duplicate_threshold", rules.duplicate_threshold)


def identical_hard(tools: Iterable[str], rules: LoopDetectionSettings) -> int:
    """Same calls with the same result from which on a second tier's word counts no more."""
    return _most(tools, rules, "identical_hard", rules.tool_calls.identical_hard)


def _most(tools: Iterable[str], rules: LoopDetectionSettings, name: str, common: int) -> int:
    given = rules.tool_calls.overrides
    own = [getattr(given.get(tool), name, None) for tool in tools]
    return max([common if one is None else one for one in own], default=common)
