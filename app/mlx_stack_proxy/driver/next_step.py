"""The rules for what follows an attempt: deliver, retry, move to another tier, or fail.

:data:`ROWS` is the table of rules. Each kind of failure has a row: the rules to try, in order, and
what the client gets if no rule applies. :func:`kind_of` selects a verdict's row. The rules are in
``rules.py``; each is a small function that returns a step, or None if it doesn't apply.

The result depends only on the exchange, the settings, the view of the tiers and the time; nothing
here does I/O. ``docs/escalation.md`` has the same rules in words.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from msgspec import Struct

from ..engine.exchange import Exchange
from ..engine.steps import Deliver, Step
from ..engine.tier_view import TierView
from ..engine.verdicts import Cut, Failure, InvalidToolCall, LoopDetected
from ..settings import Settings
from .rules import (
    act_on_first_failure,
    deliver,
    deliver_agreed,
    deliver_call_in_text,
    deliver_confirmed,
    deliver_earlier,
    deliver_last_if_configured,
    error,
    larger_tier,
    next_local_tier,
    next_tier,
    next_tier_for_more,
    next_tier_for_same_mistake,
    next_tier_on_suspicion,
    next_tier_once,
    pass_on_answer,
    retry_asking,
    retry_corrected,
    retry_for_answer,
    retry_for_more,
    retry_hung,
    retry_in_tool_result,
    retry_later,
    retry_once,
    retry_plain,
    retry_strict,
    retry_unguided,
    retry_with_any_room,
    retry_with_room,
    tier_elsewhere,
)
from .situation import Situation


class Row(Struct, frozen=True):
    """What follows one kind of failure."""

    rules: tuple[Callable[[Situation], Step | None], ...]  # the first step counts
    fallback: Callable[[Situation], Step]  # used if no rule gives a step


ROWS: Final[Mapping[str, Row]] = {
    # Replies
    "ended early": Row((), deliver),
    "second opinion failed": Row(
        (deliver_call_in_text, next_tier_for_same_mistake), deliver_earlier
    ),
    "doubted repetition": Row((next_tier_on_suspicion,), deliver),
    "doubted, by the tier's habit": Row((next_tier_on_suspicion, retry_asking), deliver),
    "doubted reply": Row((retry_asking,), deliver),
    "bad call": Row((retry_corrected, next_tier), deliver_last_if_configured),
    "loop": Row((deliver_confirmed, deliver_agreed, next_tier, retry_once), error),
    "loop, an error at once": Row((), error),
    # The next tier first, because this tier's limit stays the same. Finally the client gets the
    # cut reply, whose finish_reason `length` is correct.
    "cut, and next to all lost": Row((next_tier, retry_once), deliver),
    "cut while it thought": Row((retry_for_answer, next_tier), error),
    "empty reply": Row((retry_once, next_tier), error),
    "nothing after a tool's result": Row((retry_for_more, next_tier_for_more), deliver),
    "our own words": Row((retry_plain, next_tier), deliver),
    # Upstream's failures
    "server_error": Row((retry_later, next_tier), error),
    "timeout": Row((next_tier, retry_hung), error),
    "silent, though its server answers": Row((next_tier_on_suspicion,), error),
    "no connection": Row((tier_elsewhere,), error),
    "tier_busy": Row((next_local_tier,), error),
    "other": Row((next_tier,), error),
    "guided form refused": Row((retry_unguided, next_tier), error),
    "prompt too long": Row(
        (
            retry_with_room,
            larger_tier,
            retry_with_any_room,
            retry_in_tool_result,
            act_on_first_failure,
        ),
        pass_on_answer,
    ),
    "client's fault": Row((retry_in_tool_result, act_on_first_failure), pass_on_answer),
    "server's own limit": Row(
        (retry_strict, retry_in_tool_result, act_on_first_failure, next_tier_once),
        pass_on_answer,
    ),
    "our words refused": Row(
        (retry_in_tool_result, act_on_first_failure, retry_later, next_tier), error
    ),
    # Our own refusals
    "tier without budget": Row((next_local_tier,), error),
    "refused by us": Row((), error),
}

# The rows of failures whose name differs from their kind.
_KINDS: Final[Mapping[str, str]] = {
    "empty_response": "empty reply",
    "ended": "nothing after a tool's result",
    "parroted": "our own words",
    "reasoning": "cut while it thought",
    "unseen": "cut, and next to all lost",
    "context_overflow": "prompt too long",
    "silent": "silent, though its server answers",
    "unreachable": "no connection",
    "rejected": "refused by us",
    "tier_rejected": "tier without budget",
}
# The rows of refusals, by who is at fault.
_REFUSED: Final[Mapping[str, str]] = {
    "client": "client's fault",
    "client_or_ours": "client's fault",
    "server": "server's own limit",
    "ours": "our words refused",
}


def next_step(exchange: Exchange, settings: Settings, view: TierView, now: float) -> Step:
    """Return the step that follows the exchange's last outcome.

    ``view``: the tiers' states. ``now``: seconds, on the clock of ``request.started``.
    """
    verdict = exchange.outcomes[-1].verdict
    if verdict is None:
        return Deliver()
    situation = Situation(exchange, verdict, settings, view, now)
    row = ROWS[kind_of(situation)]
    for rule in row.rules:
        if step := rule(situation):
            return step
    return row.fallback(situation)


def kind_of(situation: Situation) -> str:
    """Return the key in :data:`ROWS` for the situation's verdict."""
    match situation.verdict:
        case _ if situation.exchange.outcomes[-1].guided == "refused":
            return "guided form refused"
        case Failure(kind="ended") if not isinstance(
            situation.exchange.second_opinion_on, InvalidToolCall
        ):
            return _KINDS["ended"]  # so it does not mean the repeated call
        case _ if situation.exchange.second_opinion_on is not None:
            return "second opinion failed"  # a reply without a verdict was delivered by `next_step`
        case InvalidToolCall(doubt=True):
            return "doubted, by the tier's habit" if situation.verdict.ask_next else "doubted reply"
        case InvalidToolCall():
            return "bad call"
        case LoopDetected(doubt=True):
            return "doubted repetition"
        case LoopDetected():
            escalates = situation.settings.reliability.loop_detection.on_break == "escalate"
            return "loop" if escalates else "loop, an error at once"
        case Failure(kind="refused", fault=fault):
            return _REFUSED[fault]
        case Failure(kind=kind):
            row = _KINDS.get(kind, kind)
            return row if row in ROWS else "other"
        case Cut():
            return "ended early"
