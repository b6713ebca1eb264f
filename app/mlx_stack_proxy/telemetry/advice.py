"""Make advice of a report's figures, with the line of ``config.yaml`` that follows the advice.

Each rule in ``RULES`` looks at one tier's sums and returns advice or None. Few figures prove
nothing, so no rule advises below ``ENOUGH`` of the calls, requests or replies that it counts.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from ..frozen import frozen
from ..settings import Settings
from .metrics import OTHER
from .report_words import labels

ENOUGH: Final = 10  # calls, requests or replies
OFTEN: Final = 0.2  # a share of these, as the next two are
MOSTLY: Final = 0.5
SELDOM: Final = 0.05
LONG_SECONDS: Final = 5.0  # of waiting in a queue, on average

Sums = Mapping[str, float]


@frozen
class Advice:
    """What one rule advises for one tier."""

    says: str  # a sentence
    setting: str  # the setting's path, with dots
    line: str  # the setting as it would stand in the file


@frozen
class Tier:
    """A tier that the rules look at; ``tier[counter]`` is 0 for a counter that it lacks."""

    name: str
    sums: Sums  # by counter
    following: tuple[str, ...]  # the tiers after it in the chain

    def __getitem__(self, counter: str) -> float:
        return self.sums.get(counter, 0)


def tool_often_wrong(tier: Tier, settings: Settings) -> Advice | None:
    invalid = labels(tier.sums, "invalid_calls")
    shares = {
        tool: (wrong, calls)
        for tool, wrong in invalid.items()
        if tool != OTHER and (calls := tier[f"calls:{tool}"]) >= ENOUGH and wrong / calls > OFTEN
    }
    if not shares:
        return None
    tool = max(shares, key=lambda name: shares[name][0] / shares[name][1])
    wrong, calls = shares[tool]
    says = f"{tier.name} gets {tool} wrong in {wrong:,.0f} of {calls:,.0f} calls"
    retries = settings.reliability.tool_validation.max_retries
    if tier.following and retries > 1:
        setting = "reliability.tool_validation.max_retries"
        return Advice(f"{says}: ask {tier.following[0]} sooner.", setting, "max_retries: 1")
    return _start_higher(tier, says)


def calls_as_text(tier: Tier, settings: Settings) -> Advice | None:
    calls, found = tier["calls"], tier["calls_found"]
    if found < ENOUGH or found / calls <= MOSTLY:
        return None
    share = "every call" if found >= calls else f"{found:,.0f} of {calls:,.0f} calls"
    verb = "comes" if found >= calls else "come"
    says = f"{share} of {tier.name} {verb} as text"
    if tier["repairs:doubled_braces"] / found > OFTEN:
        says += "; its template shows doubled braces"
    setting = f"tiers.{tier.name}.guided"
    return Advice(f"{says}: guide it with a schema.", setting, "guided: always")


def tier_mostly_left(tier: Tier, settings: Settings) -> Advice | None:
    requests = max(tier["visits"], tier["attempts"] - tier["retries"])
    if requests < ENOUGH or tier["left"] / requests <= MOSTLY:
        return None
    why = next(iter(labels(tier.sums, "left")), "").replace("_", " ")
    says = (
        f"{tier.name} was left in {tier['left']:,.0f} of {requests:,.0f} requests, mostly for {why}"
    )
    return _start_higher(tier, says)


def queue_always_full(tier: Tier, settings: Settings) -> Advice | None:
    calls, queued = tier["attempts"] + tier["queue_timeouts"], tier["queued"]
    if calls < ENOUGH or queued / calls <= MOSTLY or tier["queue_seconds"] < LONG_SECONDS * queued:
        return None
    average = tier["queue_seconds"] / queued
    places = settings.tiers[tier.name].max_concurrency
    return Advice(
        f"{queued:,.0f} of {calls:,.0f} calls waited for {tier.name}, {average:.0f} s on average: "
        f"let its server take more than {places} at once, if it can.",
        f"tiers.{tier.name}.max_concurrency",
        f"max_concurrency: {2 * places}",
    )


def limit_that_cuts(tier: Tier, settings: Settings) -> Advice | None:
    replies, cut = tier["attempts"], tier["replies_cut"]
    if replies < ENOUGH or cut / replies <= SELDOM:
        return None
    limit = settings.reliability.token_budget.max_output_tokens
    says = f"{cut:,.0f} of {replies:,.0f} replies of {tier.name} reached the limit of {limit:,}"
    return Advice(
        f"{says} tokens.",
        "reliability.token_budget.max_output_tokens",
        f"max_output_tokens: {2 * limit}",
    )


def window_too_small(tier: Tier, settings: Settings) -> Advice | None:
    calls, over = tier["attempts"], tier["failed:context_overflow"]
    if calls < ENOUGH or over / calls <= SELDOM:
        return None
    window = settings.tiers[tier.name].context_window
    return Advice(
        f"{over:,.0f} of {calls:,.0f} prompts were too long for {tier.name}: give its server a "
        f"larger window, or configure its real size (now {window:,}).",
        f"tiers.{tier.name}.context_window",
        f"context_window: {window // 2}",
    )


Rule = Callable[[Tier, Settings], Advice | None]
RULES: Final[tuple[Rule, ...]] = (
    tool_often_wrong,
    calls_as_text,
    tier_mostly_left,
    queue_always_full,
    limit_that_cuts,
    window_too_small,
)


def advice(by_tier: Mapping[str, Sums], settings: Settings) -> list[dict[str, Any]]:
    """Return advice as JSON for tiers that the settings still have, in the chain's order."""
    chain = settings.reliability.escalation.chain
    entries = []
    for name in dict.fromkeys([*chain, *settings.tiers]):
        after = chain[chain.index(name) + 1 :] if name in chain else ()
        tier = Tier(name, by_tier.get(name, {}), after)
        for rule in RULES:
            if (tip := rule(tier, settings)) is not None:
                parts = {"says": tip.says, "setting": tip.setting, "line": tip.line}
                entries.append({"rule": rule.__name__, "tier": name, **parts})
    return entries


def _start_higher(tier: Tier, says: str) -> Advice | None:
    """Advise to begin with the next tier; return None if there is none."""
    if not tier.following:
        return None
    chain = f"chain: [{', '.join(tier.following)}]"
    return Advice(f"{says}: begin with {tier.following[0]}.", "reliability.escalation.chain", chain)
