"""Every rule about what comes after an attempt: deliver it, try again, move on, or fail.

A pure function of the exchange, the verdict and the time. The runner only obeys.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ..errors import ProxyError, invalid
from ..settings import ReliabilitySettings
from .exchange import Exchange
from .verdicts import (
    Cut,
    EmptyResponse,
    InvalidToolCall,
    LeftOpen,
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
class Retry:
    """Try again on the same tier. ``number``: which retry for this reason, from 1.

    ``correct``: tell the model what was wrong. ``last``: no other retry will follow this one.
    """

    reason: str
    number: int
    correct: bool = False
    last: bool = False


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


Step = Deliver | Retry | PassOn | Fail


def next_step(
    exchange: Exchange, verdict: Verdict | None, settings: ReliabilitySettings, now: float
) -> Step:
    """What to do with an attempt that ended; ``verdict`` None: nothing is wrong with it.

    ``now``: seconds, on the clock of ``exchange.started``.
    """
    match verdict:
        case None | Cut() | LeftOpen():
            return Deliver()
        case UpstreamFailed():
            return _after_upstream_failure(exchange, verdict)
        case InvalidToolCall():
            return _after_invalid_call(exchange, verdict, settings, now)
        case OutputTruncated():
            return _after_truncation(exchange, verdict, settings, now)
        case _:
            return Fail(error_of(exchange, verdict))


def reason_of(verdict: Verdict | None) -> str | None:
    """Why an attempt failed, in the words of DESIGN §7; None if it was delivered."""
    match verdict:
        case None | Cut() | LeftOpen():
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
            return _validation_error(exchange, verdict)
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


def _after_invalid_call(
    exchange: Exchange, verdict: InvalidToolCall, settings: ReliabilitySettings, now: float
) -> Step:
    rules = settings.tool_validation
    reason = "tool_validation_failure"
    done = exchange.retried.get(reason, 0)
    # After committed text one retry is all: what it adds can still join what the client has.
    spoilt = exchange.committed is not None and exchange.committed.text and exchange.text_retried
    if done < rules.max_retries and not spoilt and _may_go_on(exchange, settings, now):
        last = done + 1 == rules.max_retries
        return Retry(reason, done + 1, correct=rules.retry_with_correction, last=last)
    if rules.on_exhausted == "return_last":
        return Deliver()
    return Fail(_validation_error(exchange, verdict))


def _after_truncation(
    exchange: Exchange, verdict: OutputTruncated, settings: ReliabilitySettings, now: float
) -> Step:
    flowed = exchange.committed is not None and bool(exchange.committed.text)
    retried = exchange.retried.get("output_truncated")
    if not flowed and not retried and _may_go_on(exchange, settings, now):
        return Retry("output_truncated", 1, last=True)
    # Cut twice, or after text that can't be taken back: an honest `length` is what is left.
    return Deliver()


def _may_go_on(exchange: Exchange, settings: ReliabilitySettings, now: float) -> bool:
    """Whether the bounds of an exchange allow another upstream call."""
    rules = settings.escalation
    in_time = now - exchange.started < rules.exchange_timeout
    return in_time and len(exchange.attempts) < rules.max_attempts


def _after_upstream_failure(exchange: Exchange, verdict: UpstreamFailed) -> Step:
    if verdict.client_fault and verdict.status is not None:
        if exchange.headers_sent:  # by keep-alive: what upstream said has to go into the stream
            return Fail(invalid(verdict.message, status=verdict.status))
        return PassOn(verdict.status, verdict.headers, verdict.body)
    if exchange.model_failure is not None:
        return Fail(error_of(exchange, exchange.model_failure))
    return Fail(_upstream_error(exchange, verdict))


def _validation_error(exchange: Exchange, verdict: InvalidToolCall) -> ProxyError:
    failures = [{"tool": failure.tool, "error": failure.error} for failure in verdict.failures]
    what = failures[0]["error"] if failures else "no valid tool call"
    extra: dict[str, Any] = {"failures": failures, "last_response": exchange.last_response}
    return ProxyError(
        422,
        "tool_validation_failed",
        f"the model's tool call is not valid, {_times(exchange)}: {what}",
        extra={**extra, **_attempts(exchange)},
    )


def _times(exchange: Exchange) -> str:
    count = len(exchange.attempts)
    return "tried once" if count == 1 else f"tried {count} times"


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
