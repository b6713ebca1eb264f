"""What a stage, or the wire, can say about an attempt. Nothing said means: go on."""

from __future__ import annotations

from dataclasses import field, replace
from typing import Any, Literal

from ..errors import ProxyError
from ..frozen import frozen

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


@frozen
class LoopDetected:
    """The reply would close a loop, or is one."""

    detector: str
    repeats: int  # laps
    message: str
    hint: str = ""  # what to tell the next try
    pattern: str = ""  # a digest that stays the same as long as what repeats does
    confirmable: bool = False  # it is no loop if a second tier wants the very same calls
    confirmed: bool = False  # two tiers agreed on it before, in an earlier request of this run
    calls: tuple[tuple[str, str], ...] = ()  # the reply's: name, canonical arguments
    generated: bool = False  # found while the reply was being written
    doubt: bool = False  # it may well be right: it goes out where no other tier can be asked
    place: int = 0  # of the turn after which it came


@frozen
class CallFailure:
    """What is wrong with a call."""

    tool: str
    kind: str  # a bounded label
    error: str  # a sentence for the model
    choice: int = 0
    position: int = -1  # of the call in its choice; -1: the reply as a whole


@frozen
class InvalidToolCall:
    """At least one call of the reply, or its JSON, can't be delivered."""

    failures: tuple[CallFailure, ...]
    # It may well be right: the model is asked once more, and what comes then goes out.
    doubt: bool = False
    # The next tier is asked, told nothing, for the same one would make the same slip again.
    ask_next: bool = False
    # The reply as a message, for the error's `last_response`.
    response: dict[str, Any] | None = field(default=None, compare=False)


@frozen
class OutputTruncated:
    """A limit that was not the client's cut the reply before anything usable came."""

    limit: Literal["reasoning", "unseen"]  # `unseen`: next to all that the model wrote is lost


@frozen
class EmptyResponse:
    """The reply has nothing that a client could use."""


@frozen
class Cut:
    """Stop generating here, and deliver what there is."""

    # As in X-MLX-Stack-Truncated, or `loop_detected` where `on_break` is `stop`.
    kind: Literal["repeated_tool_calls", "max_output_tokens", "loop_detected"]
    finish_reason: str


@frozen
class Rejected:
    """The request is refused before an upstream call, with this error."""

    error: ProxyError
    tier_only: bool = False  # it is the tier's affair alone: another one may take the request


@frozen
class UpstreamFailed:
    """The attempt brought no reply.

    The engine finds it; and the stage of escalation, where LiteLLM made up a reply's end.
    """

    reason: FailureReason
    message: str
    status: int | None = None  # with `headers` and `body`: upstream's answer, where it gave one
    headers: tuple[tuple[bytes, bytes], ...] = ()
    body: bytes = b""
    unreachable: bool = False  # no connection could be made
    client_fault: bool = False  # the answer is about the client's request
    about_ours: bool = False  # it may be about words of ours, which stood behind a tool's result
    blameless: bool = False  # it says nothing about the tier's server
    retry_after: float | None = None  # seconds
    final: bool = False  # the tier would say the same again
    silent: bool = False  # nothing came, though the server answers: a guess that its model hangs
    lacks: str = ""  # what the tier says it can't do, of `ladder.ABILITIES`
    window: int | None = None  # the context window in tokens that the answer speaks of


@frozen
class LeftOpen:
    """The reply is finished, and upstream neither ends the stream nor sends anything more.

    Found by the engine; the reply is judged and delivered as if the stream had ended.
    """


Verdict = (
    LoopDetected
    | InvalidToolCall
    | OutputTruncated
    | EmptyResponse
    | Cut
    | Rejected
    | UpstreamFailed
    | LeftOpen
)

_SEVERITY: tuple[type, ...] = (
    Rejected,
    UpstreamFailed,
    LoopDetected,
    InvalidToolCall,
    OutputTruncated,
    EmptyResponse,
    Cut,
)


def severest(verdicts: list[Verdict]) -> Verdict | None:
    """The verdict that counts when several stages judged one reply.

    What is surely wrong comes before any doubt, with which a reply may go out as it is. So may one
    that goes round, on another tier's word; but not where something else is wrong with it, too.
    """
    if not verdicts:
        return None
    sure = [one for one in verdicts if not is_doubt(one)]
    worst = min(sure or verdicts, key=lambda one: _SEVERITY.index(type(one)))
    if len(sure) > 1 and isinstance(worst, LoopDetected) and worst.confirmable:
        return replace(worst, confirmable=False, confirmed=False)
    return worst


def reason_of(verdict: Verdict | None) -> str | None:
    """Why an attempt failed, in the words of metrics and ``escalate_on``; None if it was delivered.

    ``client_error``: upstream refuses what the client asks, or what we added to it, which is no
    tier's failure.
    """
    match verdict:
        case None | Cut() | LeftOpen():
            return None
        case UpstreamFailed(reason="server_error") if verdict.client_fault or verdict.about_ours:
            return "client_error"
        case UpstreamFailed():
            return verdict.reason
        case LoopDetected():
            return "loop_detected"
        case InvalidToolCall():
            return "tool_validation_failure"
        case OutputTruncated():
            return "output_truncated"
        case EmptyResponse():
            return "empty_response"
        case Rejected():
            return verdict.error.type


def is_doubt(verdict: Verdict | None) -> bool:
    """Whether the reply may well be right: it goes out if a second one is no better."""
    return isinstance(verdict, (LoopDetected, InvalidToolCall)) and verdict.doubt
