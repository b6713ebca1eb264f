"""How one attempt ended, and what was said about it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ..frozen import frozen
from ..wire.reply import Reply
from .verdicts import UpstreamFailed, Verdict

# What is kept for the post-mortem; docs/observability.md says when, and what each tells.
EVENT_KINDS = (
    "loop_warning",
    "loop_break",
    "tool_call_invalid",
    "tool_call_repaired",
    "escalated",
    "exhausted",
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
)


@frozen
class Incident:
    """Something a stage did or found, for the counters and the events."""

    kind: str  # an event's name
    labels: tuple[str, ...]  # bounded words for the counter
    detail: Mapping[str, Any] = field(default_factory=dict)


@frozen
class Inquiry:
    """What a stage wants a model to be asked: beside the exchange, once that is over."""

    tier: str  # who is asked
    body: Mapping[str, Any]  # the request, without its `model`
    # Is given the answer's text, None where none came; says whether it could be read.
    take: Callable[[str | None], bool]


@dataclass(slots=True)
class Remarks:
    """What was said about one attempt, beside the verdict.

    ``notes`` and ``reply_notes`` are response headers (docs/http.md) by their name without the
    prefix, e.g. ``{"Budget-Warning": "83%"}``; a note that is "" takes back an earlier one.
    """

    notes: dict[str, str] = field(default_factory=dict)  # of the exchange, from here on
    reply_notes: dict[str, str] = field(default_factory=dict)  # of this attempt's reply alone
    incidents: list[Incident] = field(default_factory=list)
    inquiry: Inquiry | None = None

    def add(self, other: Remarks) -> None:
        self.notes |= other.notes
        self.reply_notes |= other.reply_notes
        self.incidents += other.incidents
        self.inquiry = other.inquiry or self.inquiry


@frozen
class Committed:
    """What has reached the client of a reply that streams."""

    text: str = ""
    # The first chunk's `id` and `created`, which those of later attempts take on.
    identity: Mapping[str, Any] = field(default_factory=dict)
    other: bool = False  # something of a refusal, audio or an image

    @property
    def stays(self) -> bool:
        """Whether the client has what no further attempt can take back, as it can reasoning."""
        return self.other or bool(self.text)


@frozen
class Outcome:
    """How one attempt ended."""

    tier: str
    verdict: Verdict | None = None  # None: nothing is wrong with it
    reason: str | None = None  # why it failed, in the words of metrics; None: it did not
    called: bool = True  # an upstream call was made, else it ended before
    status: int | None = 200  # the upstream answer's; None: there was none
    seconds: float = 0.0  # that the call took
    silent: float = 0.0  # … until the first byte of its reply
    waited: float = 0.0  # seconds for a place on the tier
    placed: bool = True  # that place came
    tokens_in: int = 0  # of the prompt, as they count in budgets
    tokens_out: int = 0
    committed: Committed | None = None  # what it let out to the client
    remarks: Remarks = field(default_factory=Remarks)
    reply: Reply | None = None

    @property
    def unreachable(self) -> bool:
        """Whether no connection could be made."""
        return isinstance(self.verdict, UpstreamFailed) and self.verdict.unreachable

    def as_dict(self) -> dict[str, Any]:
        return {
            "tier": self.tier,
            "reason": self.reason,
            "status": self.status,
            "seconds": round(self.seconds, 3),
        }


def all_committed(outcomes: Sequence[Outcome]) -> Committed | None:
    """What several attempts have let out together."""
    found = [outcome.committed for outcome in outcomes if outcome.committed is not None]
    if len(found) < 2:
        return found[0] if found else None
    text = "".join(one.text for one in found)
    return Committed(text, found[0].identity, any(one.other for one in found))
