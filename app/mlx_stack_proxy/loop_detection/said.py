"""What a client learns of a loop: the verdict's sentence, or a notice in the reply's text."""

from __future__ import annotations

from typing import Any, Final

from ..engine.verdicts import LoopDetected
from ..wire.reply import ChoiceReply
from . import loop_model
from .finding import Finding

MESSAGE: Final = (
    "Repeated identical output detected ({repeats}x). Consider rephrasing the request or trying a "
    "different approach."
)


def verdict_of(finding: Finding, **fields: Any) -> LoopDetected:
    template = loop_model.MESSAGE if finding.detector == loop_model.DETECTOR else MESSAGE
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
    by_model = finding.detector == loop_model.DETECTOR
    times = f"{finding.repeats} turns" if by_model else f"{finding.repeats}x"
    reason = f"is part of a loop ({finding.detector}, {times})"
    notice = f"[Stopped: {subject} {reason}. Try a different approach.]"
    choice.text = f"{text}\n\n{notice}" if text.strip() else notice
    choice.tool_calls = []
    choice.finish_reason = "stop"
