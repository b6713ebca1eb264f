"""An exchange's way up the tiers, as the rules of ``core`` have it: taken, counted, kept."""

from __future__ import annotations

from dataclasses import replace

from ..engine.attempt import Attempt
from ..engine.exchange import Exchange
from ..engine.headers import RawHeaders
from ..engine.next_step import LASTING, after_waiting, leaves_silent, next_step
from ..engine.services import Services
from ..engine.steps import Move, Retry, Step
from ..engine.verdicts import InvalidToolCall, Rejected, UpstreamFailed, Verdict
from ..frozen import frozen
from ..telemetry import accounts
from ..token_budget.books import Books
from . import ladder
from .breaker import TierCall
from .ladder import Start, TierView


def view_for(services: Services, exchange: Exchange) -> TierView:
    """What is known of the tiers now, for this exchange."""
    view = services.tier_states.view()
    closed = exchange.spent | exchange.capped
    return view.without(closed) if closed else view


async def start(services: Services, exchange: Exchange, books: Books) -> Rejected | None:
    """Choose the tier to start on; the refusal, where the cloud's cap leaves none."""
    while True:
        begin, stays = _begin(services, exchange, books)
        if (refusal := await books.enter(begin.tier)) is None:
            break
        if begin.tier in exchange.capped:
            return refusal
        exchange.capped |= {begin.tier}
    first = exchange.route.first
    if stays:
        exchange.route = replace(exchange.route, tiers=(begin.tier,))
    exchange.tier = begin.tier
    if begin.reason:
        _escalated(services, exchange, first, begin.tier, begin.reason)
    return None


def _begin(services: Services, exchange: Exchange, books: Books) -> tuple[Start, bool]:
    """Where to start, and whether there is no way up from there."""
    settings = services.settings
    view = view_for(services, exchange)
    begin = ladder.start(exchange, settings, view, books.sticky)
    if books.downgrades(begin.tier):
        cheaper = ladder.downgraded(exchange, settings, view)
        if cheaper is not None:
            return cheaper, True
    sustained = services.memory.pressure.sustained
    other = ladder.relieved(exchange, settings, view, begin, sustained=sustained)
    return other or begin, False


def _has_room(services: Services, tier: str) -> bool:
    queue = services.queues[tier]
    return queue is None or queue.has_room


def _view_after(services: Services, exchange: Exchange, verdict: Verdict | None) -> TierView:
    """:func:`view_for`; after a guess without the tiers that one would have to wait for."""
    view = view_for(services, exchange)
    match verdict:
        case InvalidToolCall(ask_next=True) | UpstreamFailed(silent=True):
            return view.without(t for t in exchange.route.tiers if not _has_room(services, t))
        case _:
            return view


def leaves(services: Services, exchange: Exchange, verdict: UpstreamFailed, now: float) -> bool:
    """Whether the call that runs is to end with this verdict, for something better follows."""
    view = _view_after(services, exchange, verdict)
    return leaves_silent(exchange, verdict, services.settings, view, now)


async def following(
    services: Services, exchange: Exchange, books: Books, verdict: Verdict | None, now: float
) -> Step:
    """What follows an attempt. Where the cloud's cap forbids it, it is decided anew without."""
    while True:
        view = _view_after(services, exchange, verdict)
        step = next_step(exchange, verdict, services.settings, view, now)
        if not isinstance(step, (Retry, Move)):
            return step
        tier = step.tier if isinstance(step, Move) else exchange.tier
        if await books.enter(tier) is None:
            return step
        exchange.capped |= {tier}


def move(services: Services, exchange: Exchange, tier: str, reason: str) -> None:
    """The exchange goes on with another tier."""
    before = exchange.tier
    exchange.retried.clear()
    exchange.in_result = False
    # What was only doubted says nothing of the next turns.
    surely = reason in LASTING and exchange.asked_about is None
    exchange.climbed = exchange.climbed or surely
    exchange.tier = tier
    _escalated(services, exchange, before, tier, reason)


@frozen
class Doubted:
    """A reply that may go out yet, and where its exchange stood with it."""

    attempt: Attempt
    tier: str
    escalated_from: str
    climbed: bool
    reply_notes: dict[str, str]
    turn: bytes
    public: RawHeaders


def doubted(exchange: Exchange, attempt: Attempt, public: RawHeaders) -> Doubted:
    """Keep a reply that may be right, while a better one is asked for.

    ``public``: what LiteLLM's headers say to the client of it.
    """
    exchange.doubted = True
    exchange.doubt_is_out = exchange.text_is_out
    return Doubted(
        attempt,
        exchange.tier,
        exchange.escalated_from,
        exchange.climbed,
        dict(exchange.reply_notes),
        exchange.turn,
        public,
    )


def go_back(exchange: Exchange, kept: Doubted) -> Attempt:
    """No better one came: the exchange is where it was with that reply."""
    exchange.tier = kept.tier
    exchange.climbed = kept.climbed
    exchange.reply_notes = kept.reply_notes
    exchange.turn = kept.turn
    exchange.escalated_from = kept.escalated_from
    if not kept.escalated_from:
        for note in ("Escalated-From", "Escalation-Reason"):
            exchange.notes.pop(note, None)
    if exchange.committed is not None:
        kept.attempt.go_on_from(exchange.committed)
    return kept.attempt


def _escalated(services: Services, exchange: Exchange, before: str, tier: str, reason: str) -> None:
    if not exchange.escalated_from:
        exchange.escalated_from = before
        exchange.notes["Escalated-From"] = before
        exchange.notes["Escalation-Reason"] = reason
    services.metrics.escalations.inc(before, tier, reason)
    detail = {"from": before, "to": tier, "reason": reason}
    accounts.keep(services, exchange, [("escalated", detail)])


async def begin(
    services: Services, exchange: Exchange, books: Books, now: float
) -> TierCall | UpstreamFailed:
    """A call begins, now that it has waited for its turn; or the reason why it doesn't.

    ``now``: on the clock of ``exchange.started``.
    """
    view = view_for(services, exchange)
    failure = after_waiting(exchange, services.settings, view, now)
    if failure is not None and failure.reason != "tier_degraded":
        return failure
    if failure is not None:
        step = await following(services, exchange, books, failure, now)
        if isinstance(step, Move):  # else the cap forbids the only other tier: this one is tried
            return failure
    if exchange.route.is_cloud(exchange.tier, services.settings):
        exchange.notes["Cloud"] = "true"
    return services.tier_states.begin(exchange.tier)


def note_tier(
    services: Services, exchange: Exchange, call: TierCall, verdict: Verdict | None
) -> None:
    """Tell the tier's breaker, and whoever runs the tier, how a call ended."""
    event = services.tier_states.note(call, verdict, exchange.request)
    if isinstance(verdict, UpstreamFailed):
        services.comebacks.watch(call.tier)
    elif exchange.in_result:  # so it was for our words that the call before was refused
        accounts.note_hint_refused(services, exchange)
    if event is not None:
        accounts.keep(services, exchange, [(event["kind"], event["detail"])])
