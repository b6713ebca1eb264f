"""Example verdicts, and helpers that ask ``next_step`` what follows them."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any, Final

from mlx_stack_proxy.engine.exchange import Exchange
from mlx_stack_proxy.engine.next_step import next_step
from mlx_stack_proxy.engine.outcome import Committed, Outcome
from mlx_stack_proxy.engine.steps import Fail, Move, Retry, Step
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
from tests.engine.exchanges import exchange

LOOP = LoopDetected("repetition", 3, "the reply repeats itself")
INVALID = InvalidToolCall((CallFailure("get_weather", "schema", "`city` is missing"),))
TRUNCATED = OutputTruncated("reasoning")
FAILED = UpstreamFailed("server_error", "status 500", status=500)
TIMEOUT = UpstreamFailed("timeout", "nothing came within 30 s")
REFUSED = UpstreamFailed("server_error", "the connection was refused", unreachable=True)
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
_CALL: Final[dict[str, Any]] = {"seconds": 1.23456}
CHAIN = ("fast", "standard", "longctx")
# All the retries that a tier has.
SPENT = {
    "tool_validation_failure": 3,
    "server_error": 3,
    "empty_response": 1,
    "output_truncated": 1,
    "loop_detected": 1,
}


def after(
    *reasons: str | None,
    tiers: tuple[str, ...] = ("fast",),
    tier: str = "",
    retried: Mapping[str, int] = MappingProxyType({}),
    committed: Committed | None = None,
    text_retried: bool = False,
    model_failure: Verdict | None = None,
    failed_on: str = "",
    in_tool_result: bool = False,
    hint: str = "",
    **who: Any,
) -> Exchange:
    """An exchange whose upstream calls ended for these reasons, the last one just now.

    ``tier``: where that was; the first if not said. ``retried``: on this tier, by reason.
    ``committed``: let out by the last attempt, or, if ``text_retried``, by the first.
    ``model_failure``: an earlier attempt's, on ``failed_on``. ``in_tool_result``: this tier was
    found to take hints there alone. ``hint``: what this tier is told.
    """
    whole = exchange(tiers=tiers, **who)
    first = whole.tier
    here = tier or first
    steps: list[Step] = [Retry(reason, number) for reason, number in retried.items()]
    if in_tool_result:
        steps.append(Retry("client_error", 1, hint_in_tool_result=True))
    failed_at = -1
    if here != first or hint:
        steps.insert(0, Move(here, "", hint))
        failed_at = 0 if failed_on and failed_on != here else -1
    needed = max(len(reasons) - 1, bool(model_failure), text_retried)
    while len(steps) < needed:  # moves to where it is say nothing more
        steps.insert(0, Move(first, ""))
        failed_at += failed_at >= 0
    before = [Outcome(first, None, reason, **_CALL) for reason in reasons[:-1]]
    before += [Outcome(here, called=False)] * (len(steps) - len(before))
    if model_failure is not None:
        failed = replace(before[failed_at], verdict=model_failure)
        before[failed_at] = replace(failed, tier=failed_on or here)
    if text_retried:
        before[0] = replace(before[0], committed=committed)
    before = [replace(one, verdict=REFUSED) if one.reason == "refused" else one for one in before]
    last = Outcome(here, None, reasons[-1], **_CALL) if reasons else Outcome(here, called=False)
    whole.steps = steps
    whole.outcomes = [*before, last if text_retried else replace(last, committed=committed)]
    return whole


def running(whole: Exchange) -> Exchange:
    """The same while one more attempt runs."""
    whole, last = copy.copy(whole), whole.outcomes[-1]
    if last.called or last.committed is not None:
        whole.steps = [*whole.steps, Move(last.tier, "")]
    else:
        whole.outcomes = whole.outcomes[:-1]
    return whole


def step(
    whole: Exchange,
    verdict: Verdict | None,
    now: float = 1.0,
    view: TierView | None = None,
    **sections: Any,
) -> Step:
    """What follows if that is the verdict on the last attempt."""
    settings = from_mapping({"reliability": sections})
    *before, last = whole.outcomes
    judged = copy.copy(whole)
    judged.outcomes = [*before, replace(last, verdict=verdict)]
    return next_step(judged, settings, view or TierView(), now)


def error_after(whole: Exchange, verdict: Verdict, **sections: Any) -> ProxyError:
    sections.setdefault("escalation", {"max_retries_before_escalate": 0})
    found = step(whole, verdict, **sections)
    assert isinstance(found, Fail)
    return found.error


def climbing(*reasons: str | None, **more: Any) -> Exchange:
    """An exchange on the first of three tiers."""
    return after(*reasons, **{"tiers": CHAIN, **more})
