"""What a stage, or the wire, can say about an attempt. Nothing said means: go on."""

from __future__ import annotations

from dataclasses import field, replace
from typing import Any, Literal

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
    """The reply would close a loop, or is one. ``repeats`` counts laps.

    ``hint``: what to tell the next try. ``pattern``: a digest that stays the same as long as what
    repeats does. ``believable``: a second tier that wants the very same calls is to be believed;
    ``believed``: two tiers have agreed on this loop before, in an earlier request of this run.
    ``calls``: the reply's calls as (name, canonical arguments). ``generated``: found while the
    reply was being written. ``doubt``: it may well be right, so it goes out where no other tier can
    be asked. ``place``: of the turn after which it came.
    """

    detector: str
    repeats: int
    message: str
    hint: str = ""
    pattern: str = ""
    believable: bool = False
    believed: bool = False
    calls: tuple[tuple[str, str], ...] = ()
    generated: bool = False
    doubt: bool = False
    place: int = 0


@frozen
class CallFailure:
    """What is wrong with a call. ``error``: a sentence for the model. ``kind``: a bounded label.

    ``choice``, ``position``: which call of the reply; position -1: the reply as a whole.
    """

    tool: str
    kind: str
    error: str
    choice: int = 0
    position: int = -1


@frozen
class InvalidToolCall:
    """At least one call of the reply, or its JSON, can't be delivered.

    ``doubt``: it may well be right; the model is asked once more, and what comes then goes out.
    ``ask_next``: the next tier is, told nothing, for the same one would make the same slip again.
    """

    failures: tuple[CallFailure, ...]
    doubt: bool = False
    ask_next: bool = False
    # The reply as a message, for the error's `last_response`.
    response: dict[str, Any] | None = field(default=None, compare=False)


@frozen
class OutputTruncated:
    """The reply was cut by a limit that was not the client's; or there is nothing in it.

    ``limit``: `reasoning`; `unseen`: next to all that the model wrote is lost.
    """

    limit: str


@frozen
class EmptyResponse:
    """The reply has nothing that a client could use."""


@frozen
class Cut:
    """Stop generating here, and deliver what there is.

    ``kind`` as in X-MLX-Stack-Truncated, or ``loop_detected`` where ``on_break`` is ``stop``.
    """

    kind: Literal["repeated_tool_calls", "max_output_tokens", "loop_detected"]
    finish_reason: str


@frozen
class Rejected:
    """The request is refused before an upstream call; the fields make the error body.

    ``tier_only``: it is the tier's affair alone, so another one may take the request.
    """

    status: int
    type: str
    message: str
    extra: dict[str, Any] = field(default_factory=dict)
    retry_after: float | None = None
    tier_only: bool = False


@frozen
class UpstreamFailed:
    """The attempt brought no reply: found by the shell, never by a stage.

    ``status``, ``headers`` and ``body``: upstream's own answer where it gave one. ``refused``: no
    connection could be made. ``client_fault``: the answer is about the client's request.
    ``about_ours``: it may be about words of ours, which stood behind a tool result.
    ``blameless``: it says nothing about the tier's server. ``final``: the tier would say the same
    again. ``silent``: nothing came, though the server answers: a guess that its model hangs.
    ``lacks``: what the tier says it can't do (of ``ladder.ABILITIES``). ``window``: the context
    window in tokens that the answer speaks of.
    """

    reason: FailureReason
    message: str
    status: int | None = None
    headers: tuple[tuple[bytes, bytes], ...] = ()
    body: bytes = b""
    refused: bool = False
    client_fault: bool = False
    about_ours: bool = False
    blameless: bool = False
    retry_after: float | None = None
    final: bool = False
    silent: bool = False
    lacks: str = ""
    window: int | None = None


@frozen
class LeftOpen:
    """The reply is finished, and upstream neither ends the stream nor sends anything more.

    Found by the shell; the reply is judged and delivered as if the stream had ended.
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
    if len(sure) > 1 and isinstance(worst, LoopDetected) and worst.believable:
        return replace(worst, believable=False, believed=False)
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
            return verdict.type


def is_doubt(verdict: Verdict | None) -> bool:
    """Whether the reply may well be right: it goes out if a second one is no better."""
    return isinstance(verdict, (LoopDetected, InvalidToolCall)) and verdict.doubt
