"""The stages that the settings turn on, in the order in which they see a request and its reply."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product

from .engine.pipeline import Stage
from .escalation.stage import BrokenReplies
from .loop_detection.stage import LoopDetection
from .settings import Settings
from .token_budget.stage import ReplyLength
from .tool_validation.stage import ToolValidation


def build(settings: Settings, replaced: Sequence[Stage] = ()) -> Sequence[Stage]:
    """Make the stages that the settings turn on, in order.

    ``replaced``: the stages of the earlier settings, if they change; the new ones take over what
    the old have seen.
    """
    # The pipeline calls the stages in this order, and each sees what the earlier ones changed:
    # - Loop detection cuts a repetition before tool validation looks for calls in the text, and
    #   takes out a loop (`on_break: stop`) before tool validation doubts its calls. It keeps the
    #   request object, for ReplyLength writes a limit into it later, which loop detection reads.
    # - Tool validation makes real calls of those in the text before ReplyLength shortens the text.
    # - BrokenReplies only judges, after all stages have mended the reply.
    stages: list[Stage] = []
    if settings.reliability.loop_detection.enabled:
        stages.append(LoopDetection(settings))
    if settings.reliability.tool_validation.enabled:
        stages.append(ToolValidation(settings))
    if settings.reliability.token_budget.enabled:
        stages.append(ReplyLength(settings))
    if settings.reliability.escalation.enabled:
        stages.append(BrokenReplies(settings))
    for stage, former in product(stages, replaced):
        match stage, former:
            case LoopDetection(), LoopDetection():
                stage.continue_from(former)
            case BrokenReplies(), BrokenReplies():
                stage.continue_from(former)
    return stages


def forget(stages: Sequence[Stage], session: str | None = None) -> None:
    """Drop what the stages remember of a session. ``session``: its hash; None: of all sessions."""
    for stage in stages:
        if isinstance(stage, LoopDetection):
            stage.forget(session)
