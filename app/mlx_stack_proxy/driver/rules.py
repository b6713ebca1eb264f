"""The rules in the rows of ``next_step.py``.

Each rule takes a :class:`Situation` and returns a step. A rule that tries something returns None if
the limits, the settings or text that the client already has forbid it. The functions at the end
choose what the client gets when nothing more can be tried; they always return a step.
"""

from __future__ import annotations

from msgspec.structs import replace

from ..engine import own_words
from ..engine.client_errors import error_of, refusal
from ..engine.exchange import LASTING
from ..engine.steps import Deliver, DeliverEarlier, Fail, Move, PassOn, Retry, Step
from ..engine.verdicts import Failure, InvalidToolCall, LoopDetected
from ..escalation import ladder
from ..wire import strict_template
from .guiding import may_guide
from .situation import Situation

BACKOFF_SECONDS = 0.25  # before the first same-tier retry of a server error, doubled each time
JITTER = 0.25  # the largest random addition to a back-off, as a share of it
MAX_OBEYED_RETRY_AFTER = 5.0  # seconds; if a tier asks for more, the next tier is tried
# A retry after a hung call needs at least this much time. Judgement: a short reply's duration.
LEAST_SECONDS = 10.0
# Reasons after which a retry changes the request, by a correction, a hint or another sampling.
# Upstream may refuse the changed request although it accepted the first one.
RETRY_CHANGES_REQUEST = LASTING - {"timeout", "server_error"}
# With fewer output tokens than this, a larger tier is preferred, if there is one. Judgement.
USEFUL_ROOM = 1024
MAX_SHORTER = 2  # retries of a tier with less output
ANSWER_DIRECTLY = "Answer directly now, without further reasoning."
GO_ON = "Go on: make the next tool call, or give the final answer."


# What is tried


def retry_corrected(situation: Situation) -> Retry | None:
    """Retry, and correct the model's call."""
    rules, number = situation.settings.reliability.tool_validation, situation.retried + 1
    if number > rules.max_retries or not situation.may_add or not situation.may_retry():
        return None
    last = number == rules.max_retries or situation.retries_left == 1
    return situation.retry_in_form(number, last=last)


def retry_asking(situation: Situation) -> Retry | None:
    """Retry, and ask the model whether it meant its reply; only as this tier's first retry.

    A guided question, whose schema allows a call or an answer, is worth a further retry when a
    text may hold a call.
    """
    rules, exchange = situation.settings.reliability.tool_validation, situation.exchange
    if not rules.max_retries or not situation.may_retry():
        return None
    state = (exchange, situation.settings, situation.view, exchange.tier)
    unasked = situation.doubts_text and not exchange.guided_on_tier and may_guide(*state)
    if exchange.retried and not unasked:
        return None
    if situation.doubts_text:
        return situation.retry_in_form(situation.retried + 1)
    return Retry(situation.reason, 1, correct=rules.retry_with_correction)


def retry_unguided(situation: Situation) -> Retry | None:
    """Retry without the schema that the tier refuses; this counts as no retry."""
    step = situation.exchange.steps[-1] if situation.exchange.steps else None
    if not situation.in_time():
        return None
    if not isinstance(step, Retry):
        return Retry("client_error", 1)
    words = situation.settings.reliability.tool_validation.retry_with_correction
    return Retry(step.reason, step.number, words, last=step.last)


def retry_once(situation: Situation, hint: str = "") -> Retry | None:
    """Retry once, because another sampling may end better."""
    if situation.retried or not situation.may_add or not situation.may_retry():
        return None
    return Retry(situation.reason, 1, last=True, hint=hint or situation.hint)


def retry_for_answer(situation: Situation) -> Retry | None:
    """Retry once, and ask the model to answer without further reasoning."""
    return retry_once(situation, ANSWER_DIRECTLY)


def retry_for_more(situation: Situation) -> Retry | None:
    """Retry once per exchange, and ask for the next call or an answer."""
    return None if _silent_tiers(situation) else retry_once(situation, GO_ON)


def next_tier_for_more(situation: Situation) -> Move | None:
    """Ask one more tier; if two tiers end their turn, there is nothing more to say."""
    others = _silent_tiers(situation) - {situation.exchange.tier}
    return None if others else next_tier(situation)


def _silent_tiers(situation: Situation) -> set[str]:
    """Return the tiers that have ended their turn without any output in this exchange."""
    earlier = situation.exchange.outcomes[:-1]
    return {
        outcome.tier
        for outcome in earlier
        if isinstance(outcome.verdict, Failure) and outcome.verdict.kind == "ended"
    }


def retry_plain(situation: Situation) -> Retry | None:
    """Retry once without any words of ours, because the model has only repeated them."""
    retry = retry_once(situation)
    return retry and replace(retry, hint="", plain=True)


def retry_later(situation: Situation) -> Retry | None:
    """Retry after a back-off, or after the server's Retry-After if that is longer but short."""
    failed, retries = situation.failed, situation.retried
    if failed.final or not situation.may_add or not situation.may_retry():
        return None
    if situation.exchange.tier in situation.view.passed_over and situation.next_tier():
        return None  # the tier's breaker has opened: move to the next tier without a back-off
    retry_after = failed.retry_after or 0.0
    after = max(BACKOFF_SECONDS * 2**retries, retry_after)
    if retry_after > MAX_OBEYED_RETRY_AFTER or not situation.in_time(after * (1 + JITTER)):
        return None
    last, guided = situation.retries_left == 1, situation.exchange.guided
    return Retry(situation.reason, retries + 1, last=last, after=after, guided=guided)


def retry_hung(situation: Situation) -> Retry | None:
    """Retry once after a timeout, if the tier is known to answer.

    Then the call hung, not the server. A server that may be dead is not tried again, so that it
    costs the client one timeout, not two.
    """
    failed, proven = situation.failed, situation.exchange.tier in situation.view.proven
    if failed.fault == "nobody" or failed.final or not proven:
        return None
    return retry_once(situation) if situation.in_time(LEAST_SECONDS) else None


def retry_strict(situation: Situation) -> Retry | None:
    """Retry once with system messages and images only where every chat template accepts them."""
    exchange = situation.exchange
    strict = exchange.strict or exchange.tier in situation.view.strict
    may_help = not strict and strict_template.needs_rewriting(exchange.request.body["messages"])
    if not may_help or not situation.may_add or not situation.may_retry(free=True):
        return None
    return Retry("client_error", 1, last=True, strict=True)


def retry_in_tool_result(situation: Situation) -> Retry | None:
    """Retry with our words in a tool's result, where every chat template accepts them."""
    tier = situation.settings.tiers.get(situation.exchange.tier)
    in_tool_result = situation.exchange.hint_in_tool_result
    may_help = own_words.placement_on(tier, in_tool_result=in_tool_result) == "user"
    if not (situation.failed.may_be_ours and may_help and situation.may_retry(free=True)):
        return None
    return Retry("client_error", 1, last=True, hint_in_tool_result=True)


def act_on_first_failure(situation: Situation) -> Move | Fail | None:
    """If upstream refuses a retry, act on the failure before it: move to another tier, or fail.

    The tier accepted the first request, so the refusal is about what the retry has changed.
    """
    reason = next(
        (cause for cause in situation.exchange.retried if cause in RETRY_CHANGES_REQUEST), ""
    )
    if not reason:
        return None
    tier = None if situation.exchange.text_committed else situation.next_tier(reason)
    return situation.move(tier, reason) or error(situation)


def next_tier(situation: Situation) -> Move | None:
    return situation.move(situation.next_tier()) if situation.may_add else None


def next_tier_once(situation: Situation) -> Move | None:
    """Move if no tier has been left yet: after two tiers' refusals the client is at fault."""
    moved = any(isinstance(step, Move) for step in situation.exchange.steps)
    return None if moved else next_tier(situation)


def next_local_tier(situation: Situation) -> Move | None:
    """Move to a tier on this machine: a full queue or a spent budget must not cost cloud money."""
    return situation.move(situation.next_tier(local=True)) if situation.may_add else None


def next_tier_on_suspicion(situation: Situation) -> Move | None:
    """Move to this machine's next tier, if it is not degraded and no text is out.

    The conditions are strict because the failure is only a guess.
    """
    if situation.exchange.text_committed:
        return None
    tier = situation.next_tier(local=True)
    return None if tier in situation.view.passed_over else situation.move(tier)


def next_tier_for_same_mistake(situation: Situation) -> Move | None:
    """If a tier repeats the mistake that it was asked about, ask the next tier."""
    exchange, verdict = situation.exchange, situation.verdict
    first = exchange.outcomes[exchange.doubted or 0]
    match verdict, first.verdict:
        case InvalidToolCall(doubt=True), InvalidToolCall(doubt=True) if (
            verdict.failures[0].kind == first.verdict.failures[0].kind
            and first.tier == exchange.tier
        ):
            return next_tier_on_suspicion(situation)
    return None


def retry_with_room(situation: Situation, least: int = USEFUL_ROOM) -> Retry | None:
    """Retry with less output: as much as fits next to the prompt, by the tier's error."""
    room, number = situation.failed.room, situation.retried + 1
    if room < least or number > MAX_SHORTER or not situation.may_add:
        return None
    if not situation.may_retry(free=True):
        return None
    return Retry(situation.reason, number, last=number == MAX_SHORTER, most_output=room)


def retry_with_any_room(situation: Situation) -> Retry | None:
    return retry_with_room(situation, 1)


def larger_tier(situation: Situation) -> Move | None:
    if not situation.may_add or not situation.may_leave():
        return None
    return situation.move(
        ladder.larger(
            situation.exchange, situation.settings, situation.view, situation.failed.window
        )
    )


def tier_elsewhere(situation: Situation) -> Move | None:
    """Move to a tier that does not depend on the unreachable LiteLLM.

    That is a directly called cloud tier; from such a tier, any next one.
    """
    route = situation.exchange.request.route
    if situation.exchange.tier in route.direct:
        return next_tier(situation)
    view = situation.view.without(set(route.tiers) - route.direct)
    return next_tier(replace(situation, view=view))


def deliver_call_in_text(situation: Situation) -> Deliver | None:
    """Deliver the call that a doubted text became, if the call itself is only doubted."""
    doubt = situation.exchange.second_opinion_on
    of_text = isinstance(doubt, InvalidToolCall) and doubt.doubts_text
    loop = situation.verdict
    return Deliver() if of_text and isinstance(loop, LoopDetected) and loop.doubt else None


def deliver_confirmed(situation: Situation) -> Deliver | None:
    """Deliver a repetition that two tiers agreed on in an earlier request of the run."""
    loop = situation.verdict
    agreed = isinstance(loop, LoopDetected) and loop.confirmable and loop.confirmed
    return Deliver() if agreed else None


def deliver_agreed(situation: Situation) -> Deliver | None:
    """Deliver if two tiers want the same calls: the model may have a reason to repeat them."""
    loop, blamed = situation.verdict, situation.exchange.blamed
    if not isinstance(loop, LoopDetected) or blamed is None:
        return None
    earlier, other_tier = blamed.verdict, blamed.tier != situation.exchange.tier
    same = isinstance(earlier, LoopDetected) and loop.confirmable and loop.calls == earlier.calls
    return Deliver() if same and other_tier and situation.may_add else None


# What the client gets in the end


def deliver(situation: Situation) -> Deliver:
    return Deliver()


def deliver_earlier(situation: Situation) -> DeliverEarlier:
    """Deliver the first reply, because the second opinion failed; don't ask again."""
    assert situation.exchange.doubted is not None
    return DeliverEarlier(situation.exchange.doubted)


def deliver_last_if_configured(situation: Situation) -> Step:
    reply = situation.exchange.outcomes[-1].reply
    configured = situation.settings.reliability.tool_validation.on_exhausted == "return_last"
    if configured and (reply is None or reply.finished):  # else its server withheld it
        return Deliver()
    return error(situation)


def error(situation: Situation) -> Fail:
    return Fail(error_of(situation.exchange, situation.verdict))


def pass_on_answer(situation: Situation) -> PassOn | Fail:
    failed = situation.failed
    text = failed.body.decode("utf-8", "replace") or failed.message
    if failed.status is None or failed.inferred:  # an error in a stream has no status
        overflow = failed.kind == "context_overflow"
        return Fail(refusal(situation.exchange, 400, failed.message, text, overflow=overflow))
    # Some servers report a fault of the request with a 500; the client gets a 400.
    status = failed.status if failed.status < 500 else 400
    return PassOn(status, failed.headers, failed.body)
