"""What an attempt's failure is called, and the error a client gets when it is the last word."""

from __future__ import annotations

from typing import Any

from ..errors import OVERFLOW, ProxyError, invalid, unreachable
from .exchange import Exchange
from .steps import PassOn
from .upstream_answers import MAX_READ, is_overflow, quoted_error, window_in
from .verdicts import (
    InvalidToolCall,
    LoopDetected,
    OutputTruncated,
    Rejected,
    UpstreamFailed,
    Verdict,
    reason_of,
)

LOOP_RETRY_AFTER = 5  # seconds


def as_data(verdict: Verdict | None) -> dict[str, Any] | None:
    """A verdict for a record: what it was for, and what was found; None if nothing was."""
    reason = reason_of(verdict)
    if reason is None:
        return None
    said: dict[str, Any] = {"reason": reason}
    match verdict:
        case LoopDetected():
            said |= {"detector": verdict.detector, "repeats": verdict.repeats}
        case InvalidToolCall():
            said["failures"] = [
                {"tool": one.tool, "kind": one.kind, "error": one.error} for one in verdict.failures
            ]
        case OutputTruncated():
            said["limit"] = verdict.limit
        case UpstreamFailed():
            said |= {"message": verdict.message, "status": verdict.status}
    return said


def error_of(exchange: Exchange, verdict: Verdict) -> ProxyError:
    """The error a client gets when a verdict is the last word.

    What the model itself did wrong last, a loop or a bad call, says more than what a tier's server
    did after it.
    """
    own = exchange.model_failure
    if isinstance(verdict, UpstreamFailed) and isinstance(own, (LoopDetected, InvalidToolCall)):
        verdict = verdict if own.doubt else own  # what was only doubted has failed nobody
    match verdict:
        case LoopDetected():
            return _loop_error(exchange, verdict)
        case InvalidToolCall():
            return _validation_error(exchange, verdict)
        case Rejected():
            return verdict.error.with_extra(_attempts(exchange) if exchange.attempts else {})
        case UpstreamFailed():
            return _upstream_error(exchange, verdict)
        case OutputTruncated():
            return _all_failed(exchange, f"cut by the limit on {verdict.limit}")
        case _:
            return _all_failed(exchange, "an empty reply")


def refusal(exchange: Exchange, status: int, message: str, text: str) -> ProxyError:
    """Upstream's refusal of what the client asks, in our shape. ``text``: all that it said."""
    error = invalid(message, status=status)
    if is_overflow(text):
        error.code = OVERFLOW
        window = window_in(text)
        error.extra = {"context_window": window, "prompt_tokens": exchange.request.prompt_tokens}
    return error


def refusal_passed_on(exchange: Exchange, step: PassOn) -> ProxyError:
    """The same of an answer that can't go out as it came."""
    said = quoted_error(step.body) or f"status {step.status}"
    text = step.body[:MAX_READ].decode("utf-8", "replace")
    return refusal(exchange, step.status, said, text)


def _loop_error(exchange: Exchange, verdict: LoopDetected) -> ProxyError:
    extra = {
        "retry_after": LOOP_RETRY_AFTER,
        "detector": verdict.detector,
        "repeats": verdict.repeats,
    }
    extra |= _attempts(exchange)
    return ProxyError(422, "loop_detected", verdict.message, extra=extra)


def _validation_error(exchange: Exchange, verdict: InvalidToolCall) -> ProxyError:
    failures = [{"tool": failure.tool, "error": failure.error} for failure in verdict.failures]
    what = failures[0]["error"] if failures else "no valid tool call"
    extra: dict[str, Any] = {"failures": failures, "last_response": verdict.response}
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
    if verdict.reason in ("memory_pressure", "tier_busy"):
        # Ours, and not a tier's: what came before isn't its fault.
        return ProxyError(
            503,
            verdict.reason,
            verdict.message,
            extra=_attempts(exchange) if exchange.attempts else None,
            retry_after=verdict.retry_after,
        )
    if verdict.unreachable and _litellm_is_gone(exchange):
        return unreachable(verdict.message, _attempts(exchange))
    return _all_failed(exchange, verdict.message, verdict.reason, verdict.retry_after)


def _litellm_is_gone(exchange: Exchange) -> bool:
    """Whether every connection was refused, and not the cloud's alone."""
    behind_it = any(one.tier not in exchange.route.direct for one in exchange.attempts)
    return behind_it and all(one.unreachable for one in exchange.attempts)


def _all_failed(
    exchange: Exchange, last: str, reason: str = "", retry_after: float | None = None
) -> ProxyError:
    """``reason``: the last failure's, which may have kept any call from being made."""
    reasons = [attempt.reason for attempt in exchange.attempts] or [reason]
    timed_out = all(one == "timeout" for one in reasons)
    return ProxyError(
        504 if timed_out else 502,
        "all_tiers_failed",
        f"no tier gave a reply; the last failure: {last}",
        extra=_attempts(exchange),
        retry_after=retry_after,
    )


def _attempts(exchange: Exchange) -> dict[str, Any]:
    return {"attempts": [attempt.as_dict() for attempt in exchange.attempts]}
