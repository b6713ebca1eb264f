"""Every rule about what comes after an attempt: deliver it, try again, move on, or fail.

A pure function of the exchange and the verdict. The runner only obeys.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ..errors import ProxyError
from .exchange import Exchange
from .verdicts import (
    Cut,
    EmptyResponse,
    InvalidToolCall,
    LoopDetected,
    OutputTruncated,
    Rejected,
    UpstreamFailed,
    Verdict,
)


@dataclass(frozen=True, slots=True)
class Deliver:
    """What the gate holds goes out, and the exchange is over."""


@dataclass(frozen=True, slots=True)
class PassOn:
    """Upstream's own answer goes to the client as it came: the fault is in the request."""

    status: int
    headers: tuple[tuple[bytes, bytes], ...]
    body: bytes


@dataclass(frozen=True, slots=True)
class Fail:
    """The client gets this error: as the response, or in the stream if one has begun."""

    error: ProxyError


Step = Deliver | PassOn | Fail


def next_step(exchange: Exchange, verdict: Verdict | None) -> Step:
    """What to do with an attempt that ended; ``verdict`` None: nothing is wrong with it."""
    if verdict is None or isinstance(verdict, Cut):
        return Deliver()
    if isinstance(verdict, UpstreamFailed):
        return _after_upstream_failure(exchange, verdict)
    return Fail(error_of(exchange, verdict))


def reason_of(verdict: Verdict | None) -> str | None:
    """Why an attempt failed, in the words of DESIGN §7; None if it was delivered."""
    match verdict:
        case None | Cut():
            return None
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


def error_of(exchange: Exchange, verdict: Verdict) -> ProxyError:
    """The error a client gets when a verdict is the last word."""
    match verdict:
        case LoopDetected():
            extra = {"retry_after": 5, "detector": verdict.detector, "repeats": verdict.repeats}
            return ProxyError(422, "loop_detected", verdict.message, extra=extra)
        case InvalidToolCall():
            what = verdict.failures[0]["error"] if verdict.failures else "no valid tool call"
            return ProxyError(
                422,
                "tool_validation_failed",
                f"the model's tool call is not valid: {what}",
                extra={"failures": list(verdict.failures)},
            )
        case Rejected():
            return ProxyError(
                verdict.status,
                verdict.type,
                verdict.message,
                extra=verdict.extra,
                retry_after=verdict.retry_after,
            )
        case UpstreamFailed():
            return _upstream_error(exchange, verdict)
        case _:
            return ProxyError(
                502, "all_tiers_failed", "no tier gave a usable reply", extra=_attempts(exchange)
            )


def _after_upstream_failure(exchange: Exchange, verdict: UpstreamFailed) -> Step:
    if verdict.client_fault and verdict.status is not None and not exchange.headers_sent:
        return PassOn(verdict.status, verdict.headers, verdict.body)
    return Fail(_upstream_error(exchange, verdict))


def _upstream_error(exchange: Exchange, verdict: UpstreamFailed) -> ProxyError:
    extra = _attempts(exchange)
    if verdict.reason == "tier_busy":
        return ProxyError(503, "tier_busy", verdict.message, retry_after=verdict.retry_after)
    if verdict.refused:
        return ProxyError(
            503,
            "upstream_unavailable",
            f"LiteLLM can't be reached: {verdict.message}",
            extra=extra,
            retry_after=5,
        )
    timed_out = exchange.attempts and all(a.reason == "timeout" for a in exchange.attempts)
    return ProxyError(
        504 if timed_out else 502,
        "all_tiers_failed",
        f"no tier gave a reply; the last failure: {verdict.message}",
        extra=extra,
        retry_after=verdict.retry_after,
    )


def _attempts(exchange: Exchange) -> dict[str, Any]:
    return {"attempts": [attempt.as_dict() for attempt in exchange.attempts]}
