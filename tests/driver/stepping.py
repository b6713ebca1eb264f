"""Example verdicts and steps, and helpers that ask ``next_step`` what follows them."""

from __future__ import annotations

from typing import Any, Final

from msgspec.structs import replace

from mlx_stack_proxy.driver.next_step import next_step
from mlx_stack_proxy.engine.exchange import Exchange
from mlx_stack_proxy.engine.outcome import Committed, Figures, Outcome
from mlx_stack_proxy.engine.steps import Fail, Move, Retry, Step
from mlx_stack_proxy.engine.tier_view import TierView
from mlx_stack_proxy.engine.verdicts import (
    CallFailure,
    Failure,
    InvalidToolCall,
    LoopDetected,
    Verdict,
    empty,
    reason_of,
    rejected,
    truncated,
)
from mlx_stack_proxy.errors import ProxyError
from mlx_stack_proxy.settings_source import from_mapping
from tests.engine.exchanges import exchange

LOOP = LoopDetected("repetition", 3, "the reply repeats itself")
DOUBTED_LOOP = replace(LOOP, doubt=True, repeats=2)
INVALID = InvalidToolCall((CallFailure("get_weather", "schema", "`city` is missing"),))
DOUBT = replace(INVALID, doubt=True)
SLIP = replace(DOUBT, ask_next=True, failures=(replace(INVALID.failures[0], position=0),))
EMPTY = empty()
TRUNCATED = truncated("reasoning")
FAILED = Failure("server_error", "status 500", status=500)
TIMEOUT = Failure("timeout", "nothing came within 30 s")
SILENT = replace(TIMEOUT, kind="silent")
REFUSED = Failure("unreachable", "the connection was refused")
BUSY = Failure("tier_busy", "tier fast: no free place within 60 s", retry_after=60)
SHED = Failure("memory_pressure", "tier fast: memory is short", retry_after=60)
CLIENTS = Failure(
    "refused",
    "no",
    status=400,
    headers=((b"content-type", b"text/plain"),),
    body=b"no",
    fault="client",
)
OURS = replace(CLIENTS, fault="client_or_ours")
OVERFLOW = Failure("context_overflow", "too long", status=400, body=b"too long")
NO_BUDGET = rejected(ProxyError(429, "budget_exceeded", "it's used up"), tier_only=True)

INVALID_REASON = "tool_validation_failure"
BACK_OFF = Retry("server_error", 1, last=True, after=0.25)
CORRECTED = Retry(INVALID_REASON, 1, correct=True)
IN_RESULT = Retry("client_error", 1, last=True, hint_in_tool_result=True)
AGAIN = Retry("output_truncated", 1, last=True)
SECOND, THIRD = Move("standard", ""), Move("longctx", "")
TEXT, THOUGHT = Committed("Let me see."), Committed("")
CHAIN = ("fast", "standard", "longctx")
_SECONDS: Final = 1.23456

# What has happened: verdicts, each with the step that followed. ``Committed`` before a verdict is
# what that attempt had let out; None is a reply with which nothing is wrong.
Story = tuple[Verdict | Step | Committed | None, ...]


def told(*story: Verdict | Step | Committed | None, **asked: Any) -> Exchange:
    """The exchange to which this has happened. ``asked``: more about it."""
    whole = exchange(**{"tiers": CHAIN, **asked})
    committed: Committed | None = None
    for one in story:
        if isinstance(one, Committed):
            committed = one
        elif isinstance(one, (Retry, Move)):
            whole.steps.append(one)
        else:
            verdict: Verdict | None = one  # type: ignore[assignment]
            called = getattr(verdict, "error", None) is None and verdict not in (BUSY, SHED)
            ended = Outcome(
                whole.tier, verdict, reason_of(verdict), called, figures=Figures(seconds=_SECONDS)
            )
            whole.outcomes.append(replace(ended, committed=committed))
            committed = None
    return whole


def follows(
    *story: Verdict | Step | Committed | None,
    now: float = 1.0,
    view: TierView | None = None,
    rules: dict[str, Any] | None = None,
    **asked: Any,
) -> Step:
    """What follows what has happened. ``rules``: sections of the settings."""
    settings = from_mapping({"reliability": rules or {}})
    return next_step(told(*story, **asked), settings, view or TierView(), now)


def error_after(*story: Verdict | Step | Committed | None, **how: Any) -> ProxyError:
    """The error for the client where a tier's failures are not retried."""
    rules = {"escalation": {"max_retries_before_escalate": 0}, **how.pop("rules", {})}
    found = follows(*story, rules=rules, **how)
    assert isinstance(found, Fail)
    return found.error
