"""How one attempt ended, and what the stages remarked about it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

from msgspec import Struct, field

from ..wire.reply import Reply
from .verdicts import Failure, Verdict

# A schema was sent; and whether the reply has its form, or the server refused the request with it.
Guided = Literal["", "asked", "obeyed", "disregarded", "refused"]
# Statuses with which servers refuse a request for what it asks of them.
_REFUSING = frozenset({400, 415, 422, 500, 501})
# The kinds of events that are stored; docs/observability.md says when each comes and what it holds.
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
    """Something a stage did or found, for the counters and the events."""

    kind: str  # one of the incidents that `telemetry/counters.py` counts
    labels: tuple[str, ...]  # the counter's labels, each from a bounded set
    detail: Mapping[str, Any] = {}


class Inquiry(Struct, frozen=True):
    """A question that a stage wants a model to be asked, after the exchange and apart from it."""

    tier: str  # the tier to ask
    body: Mapping[str, Any]  # the request, without its `model`
    # Takes the answer's text (None: no answer came); returns whether the text could be read.
    take: Callable[[str | None], bool]


class Remarks(Struct):
    """What stages and the driver say about one attempt, besides the verdict.

    Notes are response headers (docs/http.md) by their name without the prefix, such as
    ``{"Budget-Warning": "83%"}``; a note that is "" takes back an earlier one.
    """

    notes: dict[str, str] = {}  # hold for the exchange, from here on
    reply_notes: dict[str, str] = {}  # hold for this attempt's reply only
    incidents: list[Incident] = []
    calls: list[str] = []  # the tools of all calls, wrong ones included
    inquiry: Inquiry | None = None
    call_as_text: bool = False  # the reply is still a call as text, although it was asked again
    guided: Guided = ""  # what became of a schema that the reply was to be written in
    reply_digest: str = ""  # of the reply's text, for the store to keep if the reply is delivered

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
    """What the client has of a reply that streams."""

    text: str = ""
    # The first chunk's `id` and `created`; the chunks of later attempts get the same.
    identity: Mapping[str, Any] = {}
    other: bool = False  # the client has something of a refusal, audio or an image

    @property
    def stays(self) -> bool:
        """Whether the client has more than reasoning, so that no later attempt can take it back."""
        return self.other or bool(self.text)


class Figures(Struct, frozen=True):
    """What one attempt took; its outcome and its record share them. Times are seconds."""

    status: int | None = 200  # HTTP status of upstream's answer; None: there was no answer
    seconds: float = 0.0  # duration of the call
    silent: float = 0.0  # from the call's start to the first byte of its reply
    waited: float = 0.0  # for a place on the tier
    placed: bool = True  # whether the tier gave that place
    tokens_in: int = 0  # prompt tokens, as they count in budgets
    tokens_out: int = 0  # output tokens, as they count in budgets


class Outcome(Struct, frozen=True):
    """How one attempt ended: what the rules decide by. It holds texts, so no record keeps it."""

    tier: str
    verdict: Verdict | None = None  # None: nothing is wrong with the reply
    reason: str | None = None  # why the attempt failed, in the words of metrics; None: it didn't
    called: bool = True  # an upstream call was made; False: the attempt ended before
    figures: Figures = Figures()
    committed: Committed | None = None  # what the attempt let out to the client
    remarks: Remarks = field(default_factory=Remarks)
    reply: Reply | None = None

    @property
    def unreachable(self) -> bool:
        """Whether no connection could be made."""
        return isinstance(self.verdict, Failure) and self.verdict.kind == "unreachable"

    @property
    def guided(self) -> Guided:
        """What became of the schema that the attempt sent; "" if it sent none."""
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
    """Join what several attempts have let out; None if nothing."""
    parts = [outcome.committed for outcome in outcomes if outcome.committed is not None]
    if len(parts) < 2:
        return parts[0] if parts else None
    text = "".join(part.text for part in parts)
    return Committed(text, parts[0].identity, any(part.other for part in parts))
