"""The same error text from tools, whatever was called. It warns and never breaks."""

from __future__ import annotations

from ...core.history import History
from ...settings import LoopDetectionSettings
from . import overrides
from .finding import Finding, State


class SameError:
    name = "same_error"

    def find(self, history: History, rules: LoopDetectionSettings) -> Finding | None:
        turns = history.turns
        if not turns or not history.pending.known:
            return None
        best: Finding | None = None
        for at, result in enumerate(history.pending.results):
            tool = turns[-1].calls[at].name
            if result is None or not result.error or tool in rules.exempt_tools:
                continue
            count, first = _count(history, result.digest, rules)
            if count >= overrides.same_error(tool, rules) and best is None:
                pattern = f"{result.digest:016x}"
                place = turns[first].place
                hint = _hint(count)
                best = Finding(self.name, State.WARNING, count, tool, pattern, hint, place)
        return best

    def could_break(self, history: History, rules: LoopDetectionSettings) -> bool:
        return False


def _count(history: History, error: int, rules: LoopDetectionSettings) -> tuple[int, int]:
    """How often the error came within the window and this task, and the turn of the first."""
    turns = history.turns
    start = max(history.task_start, len(turns) - rules.tool_calls.window, 0)
    count = 0
    first = len(turns) - 1
    for position in range(len(turns) - 1, start - 1, -1):
        calls = turns[position].calls
        for at, result in enumerate(history.results(position)):
            counts = at < len(calls) and calls[at].name not in rules.exempt_tools
            if counts and result is not None and result.error and result.digest == error:
                count += 1
                first = position
    return count, first


def _hint(count: int) -> str:
    return (
        f"Tools have answered with the same error {count} times. Other arguments of the same kind "
        "will not help: find out what causes it, use another tool, or say what stands in the way."
    )
