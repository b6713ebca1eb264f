"""What is said of single tools: one very often and without news, one error again and again.

Either is said once a session: a finding's place is the tool's own, or the error's.
"""

from __future__ import annotations

from typing import Final

from ...core.call_keys import digest
from ...core.history import History
from ...settings import LoopDetectionSettings
from . import overrides
from .finding import Finding, State

LAST_CALLS: Final = 10  # of the tool, which together brought no more than …
FEW_RESULTS: Final = 2  # … so many different results, numbers apart
ERROR_TURNS: Final = 20  # in which an error comes again


def frequency(history: History, rules: LoopDetectionSettings) -> Finding | None:
    """One tool very often in a task, whose last calls all brought the same.

    It warns and never breaks: a hundred files are moved with the same answer each.
    """
    if not history.turns or not history.pending.known or history.pending.starts_task:
        return None
    for tool in dict.fromkeys([call.name for call in history.turns[-1].calls]):
        if tool in rules.exempt_tools or not _is_quiet(history, tool):
            continue  # as mostly
        turns = history.turns[history.task_start :]
        count = [call.name for turn in turns for call in turn.calls].count(tool)
        if count >= overrides.frequency(tool, rules):
            return Finding(
                "tool_frequency",
                State.WARNING,
                count,
                tool,
                f"{digest(tool):016x}",
                f"You have called {tool[:64]} {count} times for this task, and the last "
                f"{LAST_CALLS} brought nothing new. If that gets you on, go on; if not, stop "
                "calling it: take another approach, or answer with what you know.",
                digest(tool),
            )
    return None


def _is_quiet(history: History, tool: str) -> bool:
    said = []
    for position in range(len(history.turns) - 1, history.task_start - 1, -1):
        pairs = zip(history.turns[position].calls, history.results(position), strict=False)
        said += [result.shape for call, result in pairs if result and call.name == tool]
        if len(said) >= LAST_CALLS:
            return len(set(said[:LAST_CALLS])) <= FEW_RESULTS
        if len(said) > FEW_RESULTS and len(set(said)) > FEW_RESULTS:
            return False
    return False


def same_error(history: History, rules: LoopDetectionSettings) -> Finding | None:
    """The same error from tools, whatever was called. It warns and never breaks."""
    turns = history.turns
    if not any(result is not None and result.error for result in history.pending.results):
        return None
    start = max(history.task_start, len(turns) - ERROR_TURNS)
    errors = [
        (position, call, result)
        for position in range(start, len(turns))
        for call, result in zip(turns[position].calls, history.results(position), strict=False)
        if result is not None and result.error
    ]
    last, call, newest = errors[-1]
    count = sum([result.shape == newest.shape for _, _, result in errors])
    if last < len(turns) - 1 or count < overrides.same_error(call.name, rules):
        return None
    return Finding(
        "same_error",
        State.WARNING,
        count,
        call.name,
        f"{newest.shape:016x}",
        f"Tools have answered with the same error {count} times. Other arguments of the same "
        "kind will not help: find out what causes it, use another tool, or say what stands in the "
        "way.",
        newest.shape,
    )
