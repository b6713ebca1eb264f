"""The specification's five stages, in the order in which they see a request and its reply.

What each of them may do, and when, is in :class:`Stage` (before the first attempt) and
:class:`StageState` (during an attempt), both in ``engine/pipeline.py``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from .engine.pipeline import Stage
from .escalation.stage import Escalation
from .loop_detection.stage import LoopDetection
from .memory_pressure.stage import MemoryPressure
from .settings import Settings
from .token_budget.stage import TokenBudget
from .tool_validation.stage import ToolValidation

# Each stage sees what the earlier ones changed:
# - Loop detection cuts a repetition before tool validation looks for calls in the text, and takes
#   out a loop (`on_break: stop`) before tool validation doubts its calls. It keeps the request
#   object, because the token budget writes a limit into it later, which loop detection reads.
# - Tool validation makes real calls of those in the text before the token budget shortens the text.
# - Memory pressure only changes where an exchange starts.
# - Escalation judges after all others have mended the reply.
STAGES: Final = {
    "loop_detection": LoopDetection,
    "tool_validation": ToolValidation,
    "token_budget": TokenBudget,
    "memory_pressure": MemoryPressure,
    "escalation": Escalation,
}


def build(settings: Settings, replaced: Sequence[Stage] = ()) -> Sequence[Stage]:
    """Make the stages that the settings enable, in order.

    ``replaced``: the stages of the earlier settings, if they change; the new ones take over what
    the old have seen.
    """
    rules = settings.reliability
    stages: list[Stage] = [
        stage(settings) for name, stage in STAGES.items() if getattr(rules, name).enabled
    ]
    former = {type(stage): stage for stage in replaced}
    for stage in stages:
        if (predecessor := former.get(type(stage))) is not None:
            stage.continue_from(predecessor)
    return stages
