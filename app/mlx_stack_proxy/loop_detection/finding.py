"""A detector's finding, the detectors' view of a history, and the notice to the client."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final, Literal

from msgspec import Struct

from ..engine.request import MAX_NAME
from ..engine.verdicts import LoopDetected
from ..settings import LoopDetectionSettings
from ..wire.reply import ChoiceReply
from .history import History
from .turns import Turn

JUDGE: Final = "judge"  # the name of the loop model's findings
_ADVICE: Final = "Consider rephrasing the request or trying a different approach."
Noted = Literal["hint", "break", "question"]
NoteKey = tuple[Noted, str, int]  # what was noted, by which detector, at which turn's place


class Finding(Struct, frozen=True):
    """A loop that the newest turn is part of."""

    detector: str
    repeats: int  # laps or calls
    tool: str  # "": the turns make no calls
    pattern: str  # a hex digest that names the loop, stable while the loop goes on
    hint: str  # the sentence for the model
    run: tuple[int, ...]  # the places of the run's turns that are in the transcript
    certain: bool = True  # False: results changed in their numbers, so it may be a poll
    confirmable: bool = False  # no loop if a second tier wants the same calls
    length: int = 0  # turns of the run
    confidence: float | None = None  # the loop model's, from 0 to 1
    reasoning: str = ""  # the loop model's, if the settings allow keeping it

    def keys(self, noted: Noted) -> list[NoteKey]:
        return [(noted, self.detector, place) for place in self.run]

    @property
    def detail(self) -> dict[str, Any]:
        """The event's fields for this finding."""
        detail: dict[str, Any] = {
            "repeats": self.repeats,
            "tool": self.tool[:MAX_NAME],
            "pattern": self.pattern,
        }
        if self.confidence is not None:
            detail["confidence"] = self.confidence
        return detail | ({"reasoning": self.reasoning} if self.reasoning else {})

    def verdict(self, **fields: Any) -> LoopDetected:
        message = f"Repeated identical output detected ({self.repeats}x)."
        if self.detector == JUDGE:
            message = (
                f"A judge is sure that this agent is stuck ({self.repeats} turns into its task)."
            )
        return LoopDetected(
            self.detector,
            self.repeats,
            f"{message} {_ADVICE}",
            hint=self.hint,
            pattern=self.pattern,
            **fields,
        )


class DetectorView(Struct, frozen=True):
    """A history as a detector sees it.

    If the newest turn is a reply that is being judged, the limit is the one for a break; else the
    agent has already acted, and the limit is the one for a hint.
    """

    history: History
    rules: LoopDetectionSettings
    # Ask whether the next reply, with at most one call, may close a loop that has to be broken.
    # Only the existence of a finding counts then.
    foreseen: bool = False

    @property
    def judging(self) -> bool:
        return not self.history.pending.known

    def limit(self, warn: int, hard: int) -> int:
        return hard if self.foreseen or self.judging else warn

    def places(self, turns: Iterable[Turn]) -> tuple[int, ...]:
        """Return the places of the turns, without the reply that is being judged."""
        places = [turn.place for turn in turns]
        return tuple(places[:-1] if self.judging else places)

    def is_exempt(self, turn: Turn) -> bool:
        """Whether the turn calls a tool that is exempt from loop detection."""
        exempt = self.rules.exempt_tools
        return any(call.name in exempt for call in turn.calls)


def tools_of(turns: Iterable[Turn]) -> list[str]:
    """Return the names of the called tools, in order."""
    return list(dict.fromkeys([call.name for turn in turns for call in turn.calls]))


def listed(tools: list[str], between: str = ", ") -> str:
    return between.join([tool[:64] for tool in tools[:4]] + ["…"] * (len(tools) > 4))


def replace_by_notice(choice: ChoiceReply, finding: Finding) -> None:
    """Remove the looping calls, and say so in the text.

    A text without calls is replaced completely: it was sent before, and an agent may find a command
    in it.
    """
    calls = list(dict.fromkeys([call.name for call in choice.tool_calls]))
    text = choice.text if calls else ""
    subject = f"the call of {', '.join(calls)[:200]}" if calls else "the same answer"
    times = f"{finding.repeats} turns" if finding.detector == JUDGE else f"{finding.repeats}x"
    notice = (
        f"[Stopped: {subject} is part of a loop ({finding.detector}, {times}). "
        "Try a different approach.]"
    )
    choice.text = f"{text}\n\n{notice}" if text.strip() else notice
    choice.tool_calls = []
    choice.finish_reason = "stop"
