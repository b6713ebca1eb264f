"""The stages that the settings turn on, in the order in which they see a request and its reply."""

from __future__ import annotations

from collections.abc import Sequence

from .engine.pipeline import Stage
from .escalation.stage import BrokenReplies
from .loop_detection.stage import LoopDetection
from .settings import Settings
from .token_budget.stage import ReplyLength
from .tool_validation.stage import ToolValidation


def build(settings: Settings, before: Sequence[Stage] = ()) -> Sequence[Stage]:
    """Make the stages that the settings turn on, in order.

    ``before``: the stages that these replace when settings change; the new loop detection takes
    over the sessions of the old.
    """
    stages: list[Stage] = []
    if settings.reliability.loop_detection.enabled:
        loops = LoopDetection(settings)
        for former in before:
            if isinstance(former, LoopDetection):
                loops.continue_from(former)
        stages.append(loops)
    if settings.reliability.tool_validation.enabled:
        stages.append(ToolValidation(settings))
    if settings.reliability.token_budget.enabled:
        stages.append(ReplyLength(settings))
    if settings.reliability.escalation.enabled:
        stages.append(BrokenReplies(settings))
    return stages


def forget(built: Sequence[Stage], session: str) -> None:
    """Drop what the stages remember of a session. ``session``: its hash."""
    for stage in built:
        if isinstance(stage, LoopDetection):
            stage.forget(session)
