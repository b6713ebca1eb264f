"""One client request until its final response, as data.

An :class:`Exchange` has a :class:`Request`, one :class:`Outcome` for each finished attempt, and one
step for each outcome: ``steps[i]`` followed ``outcomes[i]``. Only the driver appends, first an
outcome and then its step. While an attempt runs, there are as many steps as outcomes; while a step
is being decided, there is one more outcome.

Everything else about an exchange (its tier, its retries, whether text is out) is computed from
these lists, which nearly always have no or one element.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Protocol, get_args

from msgspec import Struct

from ..settings import EscalationReason
from ..wire.dialect import Context, Encoder
from .outcome import Committed, Inquiry, Outcome, all_committed
from .request import Request
from .steps import DeliverEarlier, Move, Retry, Start, Step
from .verdicts import InvalidToolCall, LoopDetected, Verdict, is_doubt, is_models_fault

if TYPE_CHECKING:
    from .record import AttemptRecord, Record

# Escalation reasons that probably hold for a session's next turns too. A full queue soon has room,
# and the length of a prompt is checked each time.
LASTING = frozenset(get_args(EscalationReason)) - {"tier_busy", "context_overflow"}


class SessionStart(Protocol):
    """The exchange's session as stored before the exchange."""

    @property
    def first_seen(self) -> float:
        """When the session began, in seconds by the wall clock."""

    @property
    def turns(self) -> int:
        """The number of its earlier turns."""

    @property
    def replies(self) -> tuple[str, ...]:
        """Digests of its last text replies, oldest first."""


class Exchange(Struct, eq=False):
    """The data of one exchange. The driver appends to it; rules, headers and metrics read it."""

    request: Request
    outcomes: list[Outcome] = []
    steps: list[Step] = []
    start: Start | None = None  # the first tier; None: no tier has been chosen yet
    session_start: SessionStart | None = None  # None: the store wasn't read
    encoder: Encoder | None = None  # writes the reply in the client's dialect
    recorded: list[AttemptRecord] = []  # of finished attempts
    record: Record | None = None  # set when it ends

    def __post_init__(self) -> None:
        request = self.request
        if request.dialect is not None:
            tokens = partial(getattr, request, "prompt_tokens")  # estimated only when needed
            context = Context(request.id, request.model, request.echo, tokens)
            self.encoder = request.dialect.encoder(context)

    def ended_with(self, verdict: Verdict, *, called: bool) -> Exchange:
        """Return the exchange as it would be if the current attempt ended with ``verdict``."""
        other = copy.copy(self)
        other.outcomes = [*self.outcomes, Outcome(self.tier, verdict, called=called)]
        return other

    # The tier

    @property
    def _steps_to_reply(self) -> Sequence[Step]:
        """The steps before the newest attempt, or before an earlier one that is delivered."""
        steps = self.steps
        if steps and isinstance(last := steps[-1], DeliverEarlier):
            return steps[: last.index]
        return steps

    @property
    def tier(self) -> str:
        """The tier of the newest attempt, or of the earlier one whose reply is delivered."""
        for step in reversed(self.steps):
            if isinstance(step, Move):
                return step.tier
            if isinstance(step, DeliverEarlier):
                return self.outcomes[step.index].tier
        return self.start.tier if self.start is not None else self.request.route.first

    @property
    def _steps_on_tier(self) -> list[Retry | Move]:
        """The retries on the current tier, newest first, then the move that led to it."""
        steps: list[Retry | Move] = []
        for step in reversed(self.steps):
            if isinstance(step, (Retry, Move)):
                steps.append(step)
            if isinstance(step, Move):
                break
        return steps

    @property
    def escalated_from(self) -> str:
        """The first tier that the exchange left or skipped; "" if none."""
        if self.start is not None and self.start.reason:
            return self.request.route.first
        if not any(isinstance(step, Move) for step in self._steps_to_reply):
            return ""
        return self.start.tier if self.start is not None else self.request.route.first

    @property
    def escalation_reason(self) -> str:
        """Why :attr:`escalated_from` was left; "" if no tier was."""
        if self.start is not None and self.start.reason:
            return self.start.reason
        return next((step.reason for step in self._steps_to_reply if isinstance(step, Move)), "")

    @property
    def is_sticky(self) -> bool:
        """Whether the session's next turns should start on the current tier.

        True if a tier was left for a reason in :data:`LASTING`. A doubt is no such reason, because
        the reply may have been right.
        """
        return any(
            isinstance(step, Move) and step.reason in LASTING and not is_doubt(outcome.verdict)
            for outcome, step in zip(self.outcomes, self._steps_to_reply, strict=False)
        )

    # What was tried

    @property
    def attempts(self) -> list[Outcome]:
        """The finished upstream calls."""
        return [outcome for outcome in self.outcomes if outcome.called]

    @property
    def retries(self) -> int:
        """The number of retries on all tiers."""
        return sum(isinstance(step, Retry) for step in self.steps)

    @property
    def retried(self) -> dict[str, int]:
        """The number of retries so far on the current tier, by reason."""
        return {
            step.reason: step.number
            for step in reversed(self._steps_on_tier)
            if isinstance(step, Retry)
        }

    @property
    def guided(self) -> bool:
        """Whether the newest attempt sends a schema that constrains the model's reply."""
        newest = self.steps[-1] if self.steps else self.start
        return isinstance(newest, (Start, Retry, Move)) and newest.guided

    @property
    def guided_on_tier(self) -> bool:
        """Whether any attempt on the current tier was guided."""
        steps = self._steps_on_tier
        if not any(isinstance(step, Move) for step in steps) and self.start is not None:
            return self.start.guided or any(step.guided for step in steps)
        return any(step.guided for step in steps)

    @property
    def hint(self) -> str:
        """The hint for all further attempts on the current tier; "" if there is none."""
        # A hint for an earlier tier doesn't apply to the next one.
        return next((step.hint for step in self._steps_on_tier if step.hint), "")

    @property
    def plain(self) -> bool:
        """Whether the newest attempt's request must not contain words of ours."""
        return bool(self.steps) and isinstance(last := self.steps[-1], Retry) and last.plain

    @property
    def hint_in_tool_result(self) -> bool:
        """Whether hints go into a tool's result: the tier may refuse a user message of ours."""
        return any(
            isinstance(step, Retry) and step.hint_in_tool_result for step in self._steps_on_tier
        )

    @property
    def strict(self) -> bool:
        """Whether messages are rewritten for a strict chat template, after a refusal."""
        return any(isinstance(step, Retry) and step.strict for step in self._steps_on_tier)

    @property
    def most_output(self) -> int | None:
        """The output tokens that fit the tier's window, by its error; None: unknown."""
        steps = (step for step in self._steps_on_tier if isinstance(step, Retry))
        return next((step.most_output for step in steps if step.most_output), None)

    @property
    def _earlier_outcomes(self) -> list[Outcome]:
        """The outcomes before the newest attempt."""
        return self.outcomes[: len(self.steps)]

    @property
    def blamed(self) -> Outcome | None:
        """The last of :attr:`_earlier_outcomes` in which the model itself made a mistake."""
        for outcome in reversed(self._earlier_outcomes):
            if is_models_fault(outcome.verdict):
                return outcome
        return None

    @property
    def model_failure(self) -> Verdict | None:
        """The verdict of :attr:`blamed`."""
        blamed = self.blamed if self.steps else None
        return blamed.verdict if blamed is not None else None

    @property
    def doubted(self) -> int | None:
        """The index of the first doubted outcome, or None."""
        for index, outcome in enumerate(self._earlier_outcomes):
            if is_doubt(outcome.verdict):
                return index
        return None

    @property
    def second_opinion_on(self) -> LoopDetected | InvalidToolCall | None:
        """The doubt that the newest attempt resolves; None: it is not a second opinion."""
        failure = self.model_failure if self.steps else None
        if isinstance(failure, (LoopDetected, InvalidToolCall)) and failure.doubt:
            return failure
        return None

    # What the client has

    @property
    def committed(self) -> Committed | None:
        """What the client has of all finished attempts; None if nothing."""
        return all_committed(self.outcomes)

    @property
    def text_committed(self) -> bool:
        """Whether the client has text, or anything else that a later attempt can't take back."""
        committed = self.committed
        return committed is not None and committed.stays

    @property
    def text_retried(self) -> bool:
        """Whether another attempt was decided on after text had gone out."""
        committed = all_committed(self._earlier_outcomes)
        return committed is not None and committed.stays

    @property
    def hold_whole(self) -> bool:
        """Whether the whole reply is held until it is accepted."""
        body = self.request.body
        return (
            not self.request.stream
            or self.request.controls.stream == "buffered"
            or self.second_opinion_on is not None
            or self.guided
            or (body.get("n") or 1) != 1
            or bool(body.get("response_format"))
        )

    # The response and its headers

    @property
    def delivered(self) -> Outcome | None:
        """The outcome whose reply the client gets: the last one, or the earlier one of the step."""
        if self.steps and isinstance(last := self.steps[-1], DeliverEarlier):
            return self.outcomes[last.index]
        return self.outcomes[-1] if self.outcomes else None

    @property
    def notes(self) -> dict[str, str]:
        """Response headers about the exchange so far, apart from those of every response."""
        notes: dict[str, str] = {}
        if self.request.left_out:
            notes["Left-Out"] = ",".join(self.request.left_out)
        if escalated_from := self.escalated_from:
            notes["Escalated-From"] = escalated_from
            notes["Escalation-Reason"] = self.escalation_reason
        for outcome in self.outcomes:
            notes |= outcome.remarks.notes
        return notes

    @property
    def reply_notes(self) -> dict[str, str]:
        """Response headers about the delivered reply."""
        delivered = self.delivered
        return delivered.remarks.reply_notes if delivered is not None else {}

    @property
    def inquiry(self) -> Inquiry | None:
        """The newest question of a stage to a model, or None."""
        inquiries = [
            outcome.remarks.inquiry
            for outcome in self.outcomes
            if outcome.remarks.inquiry is not None
        ]
        return inquiries[-1] if inquiries else None
