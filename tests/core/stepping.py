"""Verdicts, and what follows from them."""

from __future__ import annotations

from typing import Any

from mlx_stack_proxy.engine.exchange import AttemptRecord, Exchange
from mlx_stack_proxy.engine.next_step import next_step
from mlx_stack_proxy.engine.steps import Fail, Step
from mlx_stack_proxy.engine.verdicts import (
    CallFailure,
    InvalidToolCall,
    LoopDetected,
    OutputTruncated,
    UpstreamFailed,
    Verdict,
)
from mlx_stack_proxy.errors import ProxyError
from mlx_stack_proxy.escalation.ladder import TierView
from mlx_stack_proxy.settings_source import from_mapping
from tests.core.exchanges import exchange

LOOP = LoopDetected("repetition", 3, "the reply repeats itself")
INVALID = InvalidToolCall((CallFailure("get_weather", "schema", "`city` is missing"),))
TRUNCATED = OutputTruncated("tool_calls")
FAILED = UpstreamFailed("server_error", "status 500", status=500)
TIMEOUT = UpstreamFailed("timeout", "nothing came within 30 s")
REFUSED = UpstreamFailed("server_error", "the connection was refused", refused=True)
BUSY = UpstreamFailed("tier_busy", "tier fast: no free place within 60 s", retry_after=60)
SHED = UpstreamFailed("memory_pressure", "tier fast: memory is short", retry_after=60)
CLIENTS = UpstreamFailed(
    "server_error",
    "no",
    status=400,
    headers=((b"content-type", b"text/plain"),),
    body=b"no",
    client_fault=True,
)
OVERFLOW = UpstreamFailed("context_overflow", "too long", status=400, body=b"too long")
INVALID_REASON = "tool_validation_failure"
CHAIN = ("fast", "standard", "longctx")
# All the retries that a tier has.
SPENT = {
    "tool_validation_failure": 3,
    "server_error": 3,
    "empty_response": 1,
    "output_truncated": 1,
    "loop_detected": 1,
}


def record(reason: str | None, tier: str = "fast") -> AttemptRecord:
    refused = reason == "refused"
    return AttemptRecord(tier, reason, None if refused else 200, 1.23456, refused)


def after(*reasons: str | None, **more: Any) -> Exchange:
    """An exchange on its last tier whose attempts ended like this."""
    given: dict[str, Any] = {"tiers": ("fast",), **more}
    return exchange(attempts=[record(reason) for reason in reasons], **given)


def step(
    whole: Exchange,
    verdict: Verdict | None,
    now: float = 1.0,
    view: TierView | None = None,
    **sections: Any,
) -> Step:
    settings = from_mapping({"reliability": sections})
    return next_step(whole, verdict, settings, view or TierView(), now)


def error_after(whole: Exchange, verdict: Verdict, **sections: Any) -> ProxyError:
    sections.setdefault("escalation", {"max_retries_before_escalate": 0})
    found = step(whole, verdict, **sections)
    assert isinstance(found, Fail)
    return found.error


def climbing(*reasons: str | None, **more: Any) -> Exchange:
    """An exchange on the first of three tiers."""
    return after(*reasons, **{"tiers": CHAIN, **more})
