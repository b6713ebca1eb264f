"""What a detector finds, what all of them ask of a history, and what a client learns of it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from ..engine.verdicts import LoopDetected
from ..frozen import frozen
from ..settings import LoopDetectionSettings
from ..wire.reply import ChoiceReply
from .turn import Turn

JUDGE: Final = "judge"  # the name of the loop model's findings
MESSAGE: Final = (
    "Repeated identical output detected ({repeats}x). Consider rephrasing the request or trying a "
    "different approach."
)
JUDGE_MESSAGE: Final = (
    "A judge is sure that this agent is stuck ({repeats} turns into its task). Consider rephrasing "
    "the request or trying a different approach."
)


@frozen
class Finding:
    """A loop that the newest turn is part of."""

    detector: str
    repeats: int  # laps, or calls
    tool: str  # "": the turns make no calls
    pattern: str  # a digest (hex) that names the loop, the same as long as the loop goes on
    hint: str  # what to tell the model
    run: tuple[int, ...]  # the places of the run's turns, as far as the transcript has them
    certain: bool = True  # False: results changed in their numbers, so it may be a poll
    confirmable: bool = False  # it counts as no loop if a second tier wants the same calls
    length: int = 0  # turns of the run
    confidence: float | None = None  # the loop model's, from 0 to 1
    reasoning: str = ""  # the loop model's, where the settings let us keep it


def is_exempt(turn: Turn, rules: LoopDetectionSettings) -> bool:
    """Whether the turn calls a tool that may be called over and over."""
    return any(call.name in rules.exempt_tools for call in turn.calls)


def tools_of(turns: Iterable[Turn]) -> list[str]:
    """Return the names of the tools that are called, in their order."""
    return list(dict.fromkeys([call.name for turn in turns for call in turn.calls]))


def listed(tools: list[str], between: str = ", ") -> str:
    return between.join([tool[:64] for tool in tools[:4]] + ["…"] * (len(tools) > 4))


def verdict_of(finding: Finding, **fields: Any) -> LoopDetected:
    template = JUDGE_MESSAGE if finding.detector == JUDGE else MESSAGE
    message = template.format(repeats=finding.repeats)
    return LoopDetected(
        finding.detector,
        finding.repeats,
        message,
        hint=finding.hint,
        pattern=finding.pattern,
        **fields,
    )


def replace_by_notice(choice: ChoiceReply, finding: Finding) -> None:
    """Take the looping calls out, and say so in the text.

    A text without calls is replaced as a whole: it was given before, and an agent may read a
    command in it.
    """
    calls = list(dict.fromkeys([call.name for call in choice.tool_calls]))
    text = choice.text if calls else ""
    subject = f"the call of {', '.join(calls)[:200]}" if calls else "the same answer"
    by_model = finding.detector == JUDGE
    times = f"{finding.repeats} turns" if by_model else f"{finding.repeats}x"
    reason = f"is part of a loop ({finding.detector}, {times})"
    notice = f"[Stopped: {subject} {reason}. Try a different approach.]"
    choice.text = f"{text}\n\n{notice}" if text.strip() else notice
    choice.tool_calls = []
    choice.finish_reason = "stop"
