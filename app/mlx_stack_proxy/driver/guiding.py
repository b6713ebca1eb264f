"""Whether an attempt sends a schema for its reply (pure rules).

A guided attempt needs a request that can be guided (``tool_validation/guided.py``) and a tier that
allows it: by ``tiers.*.guided`` and by the tier's earlier replies.
"""

from __future__ import annotations

from ..engine.exchange import Exchange
from ..engine.outcome import Outcome
from ..engine.tier_view import TierView
from ..engine.verdicts import InvalidToolCall
from ..settings import Settings, TierSettings
from ..tool_validation.guided import can_be_guided


def may_guide(exchange: Exchange, settings: Settings, view: TierView, tier_name: str) -> bool:
    """Whether an attempt of the exchange on this tier may be guided."""
    tier, rules = settings.tiers.get(tier_name), settings.reliability.tool_validation
    if tier is None or exchange.text_committed or not (rules.enabled and rules.rescue_text_calls):
        return False
    if "validation" in exchange.request.controls.bypass or not _takes(tier, tier_name, view):
        return False
    return can_be_guided(exchange.request)


def always_guided(exchange: Exchange, settings: Settings, view: TierView, tier_name: str) -> bool:
    """Whether even the first attempt on this tier is to be guided."""
    tier = settings.tiers.get(tier_name)
    always = tier is not None and tier.guided == "always"
    return always and may_guide(exchange, settings, view, tier_name)


def _takes(tier: TierSettings, name: str, view: TierView) -> bool:
    shown = view.guided.get(name)
    lacks = tier.response_format is False or "response_format" in view.lacks.get(name, ())
    if shown is False or lacks or tier.guided == "never":
        return False
    # A grammar can keep a reasoning model from ending its reasoning, and a cloud's models seldom
    # need one.
    return tier.guided != "auto" or (tier.local and not tier.reasoning)


def obeys(tier: TierSettings, name: str, view: TierView) -> bool:
    """Whether a tier is known to obey a schema."""
    return tier.guided != "auto" or view.guided.get(name) is True


def repeats_bad_reply(exchange: Exchange) -> bool:
    """Whether the last bad reply equals the previous bad reply on the same tier."""
    bad = [outcome for outcome in exchange.outcomes if isinstance(outcome.verdict, InvalidToolCall)]
    if len(bad) < 2 or bad[-1] is not exchange.outcomes[-1] or bad[-1].tier != bad[-2].tier:
        return False
    written = _content(bad[-1])
    return bool(written) and written == _content(bad[-2])


def _content(outcome: Outcome) -> list[tuple[str, list[tuple[str, str]]]]:
    choices = outcome.reply.choices.values() if outcome.reply is not None else ()
    return [
        (choice.text, [(call.name, call.arguments) for call in choice.tool_calls])
        for choice in choices
    ]
