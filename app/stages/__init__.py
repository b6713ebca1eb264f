"""The stages, in the order in which they see a request and its reply."""

from __future__ import annotations

from collections.abc import Sequence

from ..core.pipeline import Stage
from ..settings import Settings
from .budget import Budget
from .escalation import Escalation
from .loop_detection import LoopDetection
from .tool_validation import ToolValidation


def build(settings: Settings) -> Sequence[Stage]:
    """The stages that a configuration turns on, in order."""
    stages: list[Stage] = []
    if settings.reliability.loop_detection.enabled:
        stages.append(LoopDetection(settings))
    if settings.reliability.tool_validation.enabled:
        stages.append(ToolValidation(settings))
    if settings.reliability.token_budget.enabled:
        stages.append(Budget(settings))
    if settings.reliability.escalation.enabled:
        stages.append(Escalation(settings))
    return stages
