"""The verdicts: what a stage or the engine can find wrong with an attempt; None: nothing.

``next_step.py`` decides by the verdict what follows an attempt. A verdict with ``doubt`` says that
the reply may well be right; the reply then goes out if a second one is no better.

:class:`Failure` is the general class. The three others have fields of their own: a loop's hint, the
calls to correct, and the finish_reason of a reply that is cut and delivered.
"""

from __future__ import annotations

from typing import Any, Final, Literal

from msgspec import Struct
from msgspec.structs import replace

from ..errors import ProxyError

FailureReason = Literal[
    "tool_validation_failure",
    "loop_detected",
    "timeout",
    "server_error",
    "context_overflow",
    "tier_busy",
    "empty_response",
    "output_truncated",
    "tier_degraded",
    "memory_pressure",
    "budget_exceeded",
]
FailureKind = (
    FailureReason
    | Literal[
        "unreachable",  # no connection could be made
        "silent",  # presumed hang: no output, though the server answers
        "refused",  # the server refuses the request: `fault` says for whose words
        "reasoning",  # a limit cut the reply during the reasoning
        "unseen",  # a limit cut the reply, and nearly all that the model wrote is lost
        "ended",  # no output after a tool's result: the model has nothing more to say
        "parroted",  # the reply consists of our own words
        "rejected",  # we refuse the request before an upstream call
        "tier_rejected",  # the same, but another tier may accept the request
    ]
)
# Who is at fault. "model": it wrote a bad reply. "limit": a limit cut its reply. "nobody": the
# failure says nothing about the tier's server. "server": for a refusal, the limits of the server's
# own template or grammar; another server may accept the request.
Fault = Literal["model", "limit", "server", "client", "ours", "client_or_ours", "nobody"]
# The failure reasons of kinds that are no reasons themselves.
_REASONS: Final[dict[str, FailureReason]] = {
    "unreachable": "server_error",
    "silent": "timeout",
    "refused": "server_error",
    "reasoning": "output_truncated",
    "unseen": "output_truncated",
    "ended": "empty_response",
    "parroted": "empty_response",
}


class LoopDetected(Struct, frozen=True):
    """The reply would repeat a loop of turns, or is itself a loop."""

    detector: str
    repeats: int  # how often the pattern occurred
    message: str  # a sentence for the client
    hint: str = ""  # a sentence for the model in the next attempt
    pattern: str = ""  # a digest of the repeating part, equal in each round of the loop
    confirmable: bool = False  # no loop if a second tier wants the same calls
    confirmed: bool = False  # two tiers wanted the same calls in an earlier request of this run
    calls: tuple[tuple[str, str], ...] = ()  # the reply's calls: name, canonical arguments
    doubt: bool = False  # the reply may well be right: it goes out if no other tier can be asked
    place: int = 0  # `Turn.place` of the turn before the reply


class CallFailure(Struct, frozen=True):
    """What is wrong with one tool call."""

    tool: str
    kind: str  # a label from a bounded set, for metrics
    error: str  # a sentence for the model
    choice: int = 0  # the choice's index
    position: int = -1  # the call's position in its choice; -1: the reply as a whole is wrong
    field: str = ""  # the schema's name of the wrong field, as `a.b`; "": none


class InvalidToolCall(Struct, frozen=True):
    """At least one tool call of the reply, or its JSON, is invalid."""

    failures: tuple[CallFailure, ...]
    # The reply may well be right: the model is asked once more, and its new reply goes out.
    doubt: bool = False
    # Ask the next tier, without a hint, because this tier would make the same mistake again.
    ask_next: bool = False
    # The reply as an assistant message, for the error's `last_response`.
    response: dict[str, Any] | None = None

    @property
    def doubts_text(self) -> bool:
        """Whether the doubt is whether the reply's text holds a call."""
        return self.doubt and all(failure.position < 0 for failure in self.failures)


class Cut(Struct, frozen=True):
    """Stop generating, and deliver the reply so far."""

    # As in X-MLX-Stack-Truncated; "loop_detected" if `on_break` is `stop`. A reply with too many
    # calls is never delivered: `Attempt.settle` returns a failure for it.
    kind: Literal[
        "repeated_tool_calls", "max_output_tokens", "loop_detected", "too_many_calls", "left_open"
    ]
    finish_reason: str


# The reply has its finish_reason, but upstream keeps the stream open and sends nothing more: it is
# judged and delivered as if the stream had ended.
LEFT_OPEN: Final = Cut("left_open", "")


class Failure(Struct, frozen=True):
    """The attempt brought no good reply.

    ``upstream_answers.py`` makes it from an answer, ``deadlines.py`` from a reached limit, the
    stages from a reply, and :func:`rejected` from our own refusals.
    """

    kind: FailureKind  # selects the row of ``next_step.py``
    message: str  # for the client
    status: int | None = None  # upstream's HTTP status; None: no answer, or an error in a stream
    fault: Fault = "server"
    retry_after: float | None = None  # seconds
    final: bool = False  # the tier would fail again in the same way: no retry
    headers: tuple[tuple[bytes, bytes], ...] = ()  # upstream's
    body: bytes = b""  # upstream's
    lacks: str = ""  # the feature (of `tier_view.ABILITIES`) that the tier says it lacks
    window: int | None = None  # the context window in tokens from upstream's error
    # Output tokens that fit after an overflow, if only prompt and output together are too large.
    room: int = 0
    # What upstream's error says in a field of its own; its text may quote a client.
    in_field: Literal["window", "overflow", ""] = ""
    inferred: bool = False  # its text doesn't say what kind it is
    error: ProxyError | None = None  # our own refusal, for the client

    @property
    def reason(self) -> str:
        """Why the attempt failed, in the terms of ``escalate_on``."""
        return self.error.type if self.error is not None else _REASONS.get(self.kind, self.kind)

    @property
    def answered(self) -> bool:
        """Whether the server gave a reply, but a bad one, which is no failure of its tier."""
        return self.fault in ("model", "limit")

    @property
    def not_taken(self) -> bool:
        """Whether no server accepted the request, so that the call used no tokens."""
        return self.kind == "unreachable" or (self.status or 0) >= 400

    @property
    def may_be_ours(self) -> bool:
        """Whether upstream may refuse our words, which followed a tool's result."""
        return self.fault in ("ours", "client_or_ours")


def empty(kind: Literal["empty_response", "ended", "parroted"] = "empty_response") -> Failure:
    """Return the failure of a reply with neither text nor calls for a client."""
    return Failure(kind, "an empty reply", status=200, fault="model")


def truncated(kind: Literal["reasoning", "unseen"]) -> Failure:
    """Return the failure of a reply that a limit, not the client's, cut before anything usable."""
    return Failure(kind, f"cut by the limit on {kind}", status=200, fault="limit")


def rejected(error: ProxyError, *, tier_only: bool = False) -> Failure:
    """Return our refusal of a request. ``tier_only``: only this tier refuses it."""
    kind: FailureKind = "tier_rejected" if tier_only else "rejected"
    return Failure(kind, error.message, fault="nobody", error=error)


Verdict = LoopDetected | InvalidToolCall | Cut | Failure


def severest(verdicts: list[Verdict]) -> Verdict | None:
    """Return the verdict that counts when several stages judged one reply; None: there is none.

    A certain verdict outranks a doubt, after which the reply may still go out. A loop that a second
    tier could confirm loses that chance if anything else is wrong with the reply.
    """
    if not verdicts:
        return None
    sure = [verdict for verdict in verdicts if not is_doubt(verdict)]
    worst = min(sure or verdicts, key=_rank)
    if len(sure) > 1 and isinstance(worst, LoopDetected) and worst.confirmable:
        return replace(worst, confirmable=False, confirmed=False)
    return worst


def _rank(verdict: Verdict) -> int:
    """Return a verdict's severity; 0 is the most severe."""
    match verdict:
        case Failure():
            return ("limit", "model").index(verdict.fault) + 3 if verdict.answered else 0
        case LoopDetected():
            return 1
        case InvalidToolCall():
            return 2
        case Cut():
            return 5


def reason_of(verdict: Verdict | None) -> str | None:
    """Return why an attempt failed, in the terms of metrics and ``escalate_on``; None: it didn't.

    "client_error": upstream refuses the client's request, or what we added to it, so no tier has
    failed.
    """
    match verdict:
        case Failure():
            return "client_error" if verdict.kind == "refused" else verdict.reason
        case LoopDetected():
            return "loop_detected"
        case InvalidToolCall():
            return "tool_validation_failure"
    return None


def is_of_reply(verdict: Verdict | None) -> bool:
    """Whether the reply itself is bad, rather than the call."""
    answered = verdict.answered if isinstance(verdict, Failure) else verdict is not None
    return answered and not isinstance(verdict, Cut)


def is_models_fault(verdict: Verdict | None) -> bool:
    """Whether the model itself made a mistake, and no limit cut its reply."""
    return is_of_reply(verdict) and getattr(verdict, "fault", "model") == "model"


def is_doubt(verdict: Verdict | None) -> bool:
    """Whether the verdict is a doubt: the reply goes out if a second one is no better."""
    return isinstance(verdict, (LoopDetected, InvalidToolCall)) and verdict.doubt
