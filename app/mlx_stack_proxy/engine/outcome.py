"""How an attempt ended, and the stages' remarks about it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

from msgspec import Struct, field

from ..wire.reply import Reply
from .verdicts import Failure, Verdict

# Whether a schema was sent, and whether the reply obeys it, or the server refused it.
Guided = Literal["", "asked", "obeyed", "disregarded", "refused"]
# Statuses with which servers refuse a request because of its features.
_REFUSING = frozenset({400, 415, 422, 500, 501})
# The kinds of stored events; docs/observability.md says when each occurs and what it holds.
EVENT_KINDS = (
    "loop_warning",
    "loop_break",
    "tool_call_invalid",
    "tool_call_repaired",
    "escalated",
    "exhausted",
    "prompt_cut",
    "tier_degraded",
    "tier_recovered",
    "budget_warning",
    "budget_exceeded",
    "pressure_changed",
    "recovered",
    "client_left",
    "upstream_down",
    "upstream_up",
    "config_reloaded",
    "config_refused",
    "started",
    "stopped",
    "store_down",
    "store_up",
)


class Incident(Struct, frozen=True):
    """Something that a stage did or found, for the counters and the events."""

    kind: str  # one of the incidents that `telemetry/counters.py` counts
    labels: tuple[str, ...]  # the counter's labels, each from a bounded set
    detail: Mapping[str, Any] = {}


class Inquiry(Struct, frozen=True):
    """A stage's question to a model, asked separately after the exchange."""

    tier: str  # the tier to ask
    body: Mapping[str, Any]  # the request, without its `model`
    # Takes the answer's text (None: no answer); returns whether it could be parsed.
    take: Callable[[str | None], bool]


class Remarks(Struct):
    """The stages' and the driver's remarks about one attempt, apart from the verdict.

    Notes are response headers (docs/http.md) by their name without the prefix, such as
    ``{"Budget-Warning": "83%"}``; an empty note removes an earlier one.
    """

    notes: dict[str, str] = {}  # apply to the exchange from here on
    reply_notes: dict[str, str] = {}  # apply to this attempt's reply only
    incidents: list[Incident] = []
    calls: list[str] = []  # the tools of all calls, including wrong ones
    inquiry: Inquiry | None = None
    call_as_text: bool = False  # the reply is still a call as text, after a question about it
    guided: Guided = ""  # the result of sending a schema
    reply_digest: str = ""  # of the reply's text, stored if the reply is delivered

    def add(self, other: Remarks) -> None:
        self.notes |= other.notes
        self.reply_notes |= other.reply_notes
        self.incidents += other.incidents
        self.calls += other.calls
        self.inquiry = other.inquiry or self.inquiry
        self.call_as_text = other.call_as_text or self.call_as_text
        self.guided = other.guided or self.guided
        self.reply_digest = other.reply_digest or self.reply_digest


class Committed(Struct, frozen=True):
    """What the client has of a streamed reply."""

    text: str = ""
    # The first chunk's `id` and `created`, reused in the chunks of later attempts.
    identity: Mapping[str, Any] = {}
    other: bool = False  # the client has a part of a refusal, audio or an image

    @property
    def stays(self) -> bool:
        """Whether the client has more than reasoning, which no later attempt can take back."""
        return self.other or bool(self.text)


class Figures(Struct, frozen=True):
    """One attempt's figures, shared by its outcome and its record. Times are seconds."""

    status: int | None = 200  # of upstream's answer; None: there was no answer
    seconds: float = 0.0  # duration of the call
    silent: float = 0.0  # from the call's start to the first byte of its reply
    waited: float = 0.0  # for a place on the tier
    placed: bool = True  # whether it got one
    tokens_in: int = 0  # prompt tokens, as budgets count them
    tokens_out: int = 0  # output tokens, as budgets count them


class Outcome(Struct, frozen=True):
    """How one attempt ended: the rules' input. It holds texts, so no record keeps it."""

    tier: str
    verdict: Verdict | None = None  # None: nothing is wrong with the reply
    reason: str | None = None  # why the attempt failed, as in metrics; None: it didn't
    called: bool = True  # an upstream call was made; False: the attempt ended before it
    figures: Figures = Figures()
    committed: Committed | None = None  # what the attempt released to the client
    remarks: Remarks = field(default_factory=Remarks)
    reply: Reply | None = None

    @property
    def unreachable(self) -> bool:
        """Whether no connection could be made."""
        return isinstance(self.verdict, Failure) and self.verdict.kind == "unreachable"

    @property
    def guided(self) -> Guided:
        """The result of sending a schema; "" if none was sent."""
        refused = isinstance(self.verdict, Failure) and self.verdict.status in _REFUSING
        guided = self.remarks.guided
        return "refused" if refused and guided == "asked" else guided

    def as_dict(self) -> dict[str, Any]:
        return {
            "tier": self.tier,
            "reason": self.reason,
            "status": self.figures.status,
            "seconds": round(self.figures.seconds, 3),
        }


def all_committed(outcomes: Sequence[Outcome]) -> Committed | None:
    """Join what several attempts have released; None if nothing."""
    parts = [outcome.committed for outcome in outcomes if outcome.committed is not None]
    if len(parts) < 2:
        return parts[0] if parts else None
    text = "".join(part.text for part in parts)
    return Committed(text, parts[0].identity, any(part.other for part in parts))
