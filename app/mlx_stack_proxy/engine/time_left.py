"""How much time an exchange has left, and what may still be begun in it.

An exchange ends after ``escalation.exchange_timeout``, or when its client waits no longer,
whichever comes first. ``now`` is always on the clock of ``exchange.started``.
"""

from __future__ import annotations

import math

from ..escalation import ladder
from ..escalation.ladder import TierView
from ..settings import Settings
from .deadlines import out_of_patience
from .exchange import Exchange
from .verdicts import UpstreamFailed

# A second opinion is not worth more, for a reply is there. Judgement: twice the time for which a
# place in a tier's queue is waited for.
OPINION_SECONDS = 120.0
# The share of an exchange's time that a silent tier may take, though its server answers. Of the
# default 540 s it leaves 54 s for the next tier, a little less than its queue is waited for (60 s).
SILENT_SHARE = 0.9


def time_left(exchange: Exchange, settings: Settings, now: float) -> float:
    """Seconds until the exchange, or its client's patience, is over; below 0: it is."""
    return _time_for(exchange, settings) - (now - exchange.started)


def _time_for(exchange: Exchange, settings: Settings) -> float:
    """Seconds that an exchange has, or its client's patience, if that is less."""
    request = exchange.request
    own = settings.reliability.escalation.exchange_timeout
    limits = (own, request.client_timeout, request.patience)
    return min(limit for limit in limits if limit is not None)


def opinion_until(exchange: Exchange, settings: Settings, now: float) -> float:
    """Until when a second opinion is waited for that is asked for now; for any other call for ever.

    A tenth of what is left to the exchange and its client stays for the reply that is there.
    """
    if exchange.second_opinion_on is None:
        return math.inf
    return now + min(OPINION_SECONDS, 0.9 * max(time_left(exchange, settings, now), 0.0))


def silent_until(exchange: Exchange, settings: Settings) -> float:
    """From when on a silent call is left, if something better follows.

    On the clock of ``exchange.started``. Later, another tier would have too little time.
    """
    return exchange.started + SILENT_SHARE * _time_for(exchange, settings)


def after_waiting(
    exchange: Exchange, settings: Settings, view: TierView, now: float
) -> UpstreamFailed | None:
    """Why a call is not made, now that it has waited for its turn; None: it is made.

    The back-off or the tier's queue may have taken all the time there was, or as long as it took
    the tier's breaker to open.
    """
    if impatient := out_of_patience(exchange, now):
        return impatient
    tier = exchange.tier
    if time_left(exchange, settings, now) <= 0:
        known = settings.tiers.get(tier)
        return UpstreamFailed(
            "tier_busy",
            f"tier {tier}: no free place before the time for this request was over",
            retry_after=known.queue_timeout if known is not None else None,
        )
    # Once text is out the reply can't move any more; and the last one standing is always tried.
    if tier not in view.passed_over or exchange.text_is_out:
        return None
    if all(other in view.passed_over for other in ladder.following(exchange, settings, view)):
        return None
    return UpstreamFailed("tier_degraded", f"tier {tier} failed while this request waited")
