"""One tool very often within a task, whatever its arguments.

The hint comes at its count, progress or not: many calls of one tool are worth a thought. The break
needs that the last calls brought nothing new, for a batch of a hundred files is no loop.
"""

from __future__ import annotations

from typing import Final

from ...core.call_keys import digest
from ...core.history import History
from ...settings import LoopDetectionSettings
from . import overrides
from .finding import Finding, State

LAST_CALLS: Final = 10  # of the tool, that must have brought nothing new


class ToolFrequency:
    name = "tool_frequency"

    def find(self, history: History, rules: LoopDetectionSettings) -> Finding | None:
        if not history.turns or history.pending.starts_task:
            return None
        found: Finding | None = None
        for tool in dict.fromkeys(call.name for call in history.turns[-1].calls):
            if tool in rules.exempt_tools:
                continue
            count = history.counts[tool]
            warn, hard = overrides.frequency(tool, rules)
            breaks = count >= hard and not _brings_progress(history, tool, rules)
            if not breaks and (found is not None or count < min(warn, hard)):
                continue
            level = State.CIRCUIT_BREAK if breaks else State.WARNING
            place = history.turns[history.task_start].place
            pattern = f"{digest(tool):016x}"
            found = Finding(self.name, level, count, tool, pattern, _hint(tool, count), place)
            if breaks:
                break
        return found

    def could_break(self, history: History, rules: LoopDetectionSettings) -> bool:
        for tool, count in history.counts.items():
            if tool in rules.exempt_tools:
                continue
            _, hard = overrides.frequency(tool, rules)
            # A reply may bring several at once.
            if count >= hard - LAST_CALLS and not _brings_progress(history, tool, rules):
                return True
        return False


def _brings_progress(history: History, tool: str, rules: LoopDetectionSettings) -> bool:
    if not rules.tool_calls.require_no_progress:
        return False
    left = LAST_CALLS
    for call, came_to in history.calls_backwards():
        if call.name == tool:
            left -= 1
            if came_to.gets_on or not left:
                return came_to.gets_on
    return False


def _hint(tool: str, count: int) -> str:
    return (
        f"You have called {tool[:64]} {count} times for this task. If that gets you on, go on; if "
        "not, stop calling it: take another approach, or answer with what you know."
    )
