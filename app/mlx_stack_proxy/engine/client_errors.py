"""Turns a verdict into data for a record, and into the client's final error."""

from __future__ import annotations

from typing import Any

from ..errors import OVERFLOW, ProxyError, invalid, unreachable
from .exchange import Exchange
from .steps import PassOn
from .upstream_answers import quoted_error
from .verdicts import Cut, Failure, InvalidToolCall, LoopDetected, Verdict, reason_of
from .wordings import MAX_READ, is_overflow, window_in

LOOP_RETRY_AFTER = 5  # seconds


def as_data(verdict: Verdict | None) -> dict[str, Any] | None:
    """Return a failure's reason and findings as fields for a record; None: no failure."""
    reason = reason_of(verdict)
    if reason is None:
        return None
    fields: dict[str, Any] = {"reason": reason}
    match verdict:
        case LoopDetected():
            fields |= {"detector": verdict.detector, "repeats": verdict.repeats}
        case InvalidToolCall():
            fields["failures"] = [
                {"tool": failure.tool, "kind": failure.kind, "error": failure.error}
                for failure in verdict.failures
            ]
        case Failure(fault="limit"):
            fields["limit"] = verdict.kind
        case Failure(answered=False):
            fields |= {"message": verdict.message, "status": verdict.status}
    return fields


def error_of(exchange: Exchange, verdict: Verdict) -> ProxyError:
    """Return the error that the client gets if ``verdict`` ends the exchange.

    If a server failed after the model's own loop or bad call, the error reports the latter, which
    is more useful to the client.
    """
    failure = exchange.model_failure
    of_call = isinstance(verdict, Failure) and not verdict.answered and verdict.error is None
    if of_call and isinstance(failure, (LoopDetected, InvalidToolCall)):
        verdict = verdict if failure.doubt else failure  # a doubt is not reported as a failure
    match verdict:
        case LoopDetected():
            found = {"detector": verdict.detector, "repeats": verdict.repeats}
            extra = {"retry_after": LOOP_RETRY_AFTER, **found, **_attempts(exchange)}
            return ProxyError(422, "loop_detected", verdict.message, extra=extra)
        case InvalidToolCall():
            return _validation_error(exchange, verdict)
        case Failure(error=ProxyError() as error):
            return error.with_extra(_attempts(exchange) if exchange.attempts else {})
        case Failure():
            return _upstream_error(exchange, verdict)
        case Cut():
            return _all_failed(exchange, "an empty reply")


def refusal(
    exchange: Exchange, status: int, message: str, text: str, *, overflow: bool = False
) -> ProxyError:
    """Return upstream's refusal of the request as our error. ``text``: its whole answer.

    ``overflow``: treat it as one, whatever the text says.
    """
    error = invalid(message, status=status)
    if overflow or is_overflow(text):
        error.code = OVERFLOW
        window = window_in(text)
        error.extra = {"context_window": window, "prompt_tokens": exchange.request.prompt_tokens}
    return error


def refusal_passed_on(exchange: Exchange, step: PassOn) -> ProxyError:
    """Return upstream's refusal as our error, where its answer can't be passed on unchanged."""
    message = quoted_error(step.body) or f"status {step.status}"
    text = step.body[:MAX_READ].decode("utf-8", "replace")
    return refusal(exchange, step.status, message, text)


def _validation_error(exchange: Exchange, verdict: InvalidToolCall) -> ProxyError:
    failures = [{"tool": failure.tool, "error": failure.error} for failure in verdict.failures]
    problem = failures[0]["error"] if failures else "no valid tool call"
    extra: dict[str, Any] = {"failures": failures, "last_response": verdict.response}
    count = len(exchange.attempts)
    times = "once" if count == 1 else f"{count} times"
    return ProxyError(
        422,
        "tool_validation_failed",
        f"the model's tool call is not valid, tried {times}: {problem}",
        extra={**extra, **_attempts(exchange)},
    )


def _upstream_error(exchange: Exchange, verdict: Failure) -> ProxyError:
    if verdict.kind in ("memory_pressure", "tier_busy"):
        # We refused the call because memory is short or a queue is full; no tier has failed.
        return ProxyError(
            503,
            verdict.reason,
            verdict.message,
            extra=_attempts(exchange) if exchange.attempts else None,
            retry_after=verdict.retry_after,
        )
    tried = exchange.attempts
    to_litellm = any(attempt.tier not in exchange.request.route.direct for attempt in tried)
    if verdict.kind == "unreachable" and to_litellm and all(one.unreachable for one in tried):
        return unreachable(verdict.message, _attempts(exchange))
    return _all_failed(exchange, verdict.message, verdict.reason, verdict.retry_after)


def _all_failed(
    exchange: Exchange, last: str, reason: str = "", retry_after: float | None = None
) -> ProxyError:
    """Return the error that all tiers failed. ``reason``: used if no call was made."""
    reasons = [attempt.reason for attempt in exchange.attempts] or [reason]
    timed_out = all(failure == "timeout" for failure in reasons)
    return ProxyError(
        504 if timed_out else 502,
        "all_tiers_failed",
        f"no tier gave a reply; the last failure: {last}",
        extra=_attempts(exchange),
        retry_after=retry_after,
    )


def _attempts(exchange: Exchange) -> dict[str, Any]:
    return {"attempts": [attempt.as_dict() for attempt in exchange.attempts]}
