"""Make advice of a report's figures, with the line of ``config.yaml`` that follows the advice.

Each rule in ``RULES`` looks at one tier's sums: how often something happened, and of how many. Few
figures prove nothing, so no rule advises below ``ENOUGH`` calls, requests or replies.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

from ..settings import Settings, TierSettings
from .metrics import OTHER
from .report_words import WRONG, labels

ENOUGH: Final = 10  # calls, requests or replies
OFTEN: Final = 0.2  # a share of these, as the next two are
MOSTLY: Final = 0.5
SELDOM: Final = 0.05
LONG_SECONDS: Final = 5.0  # of waiting in a queue, on average

Sums = Mapping[str, float]


class Advice(NamedTuple):
    """What one rule advises for one tier."""

    says: str  # a sentence
    setting: str  # the setting's path, with dots
    line: str  # the setting as it would stand in the file


class Tier:
    """A tier that the rules look at; ``tier[counter]`` is 0 for a counter that it lacks."""

    def __init__(self, name: str, sums: Sums, settings: Settings) -> None:
        chain = settings.reliability.escalation.chain
        self.name, self.sums, self.rules = name, sums, settings.reliability
        self.settings: TierSettings = settings.tiers[name]
        self.following = chain[chain.index(name) + 1 :] if name in chain else ()

    def __getitem__(self, counter: str) -> float:
        return self.sums.get(counter, 0)

    def often(self, counter: str, of: float, share: float) -> str:
        """Return "3 of 40" if that is a larger share, and if ``of`` are enough; "" otherwise."""
        number = self[counter]
        return f"{number:,.0f} of {of:,.0f}" if of >= ENOUGH and number / of > share else ""

    def start_higher(self, says: str) -> Advice | None:
        """Advise to begin with the next tier; return None if there is none."""
        if not self.following:
            return None
        chain = f"chain: [{', '.join(self.following)}]"
        says = f"{says}: start with {self.following[0]}."
        return Advice(says, "reliability.escalation.chain", chain)

    def advise(self, says: str, setting: str, value: object) -> Advice:
        return Advice(says, f"tiers.{self.name}.{setting}", f"{setting}: {value}")


def tool_often_wrong(tier: Tier) -> Advice | None:
    tools = {
        tool: wrong / tier[f"calls:{tool}"]
        for tool, wrong in labels(tier.sums, "invalid_calls").items()
        if tool != OTHER and tier[f"calls:{tool}"] >= ENOUGH
    }
    tool = max(tools, key=lambda name: tools[name], default="")
    number = tier.often(f"invalid_calls:{tool}", tier[f"calls:{tool}"], OFTEN)
    if not number:
        return None
    says = f"{tier.name} gets {tool} wrong in {number} calls"
    if tier.following and tier.rules.tool_validation.max_retries > 1:
        setting = "reliability.tool_validation.max_retries"
        return Advice(f"{says}: escalate to {tier.following[0]} sooner.", setting, "max_retries: 1")
    return tier.start_higher(says)


def calls_as_text(tier: Tier) -> Advice | None:
    calls, found = tier["calls"], tier["calls_found"]
    number = tier.often("calls_found", calls, MOSTLY)
    if found < ENOUGH or not number:
        return None
    says = f"{tier.name} writes {number} calls as text"
    if found >= calls:
        says = f"{tier.name} writes every call as text"
    if tier["repairs:doubled_braces"] / found > OFTEN:
        says += "; its template shows doubled braces"
    return tier.advise(f"{says}: guide it with a schema.", "guided", "always")


def tier_mostly_left(tier: Tier) -> Advice | None:
    requests = max(tier["visits"], tier["attempts"] - tier["retries"])
    if not (number := tier.often("left", requests, MOSTLY)):
        return None
    reason = next(iter(labels(tier.sums, "left")), "")
    why = WRONG.get(reason, reason.replace("_", " "))
    says = f"{number} requests left {tier.name} for another tier, mostly because of {why}"
    return tier.start_higher(says)


def queue_always_full(tier: Tier) -> Advice | None:
    number = tier.often("queued", tier["attempts"] + tier["queue_timeouts"], MOSTLY)
    if not number or tier["queue_seconds"] < LONG_SECONDS * tier["queued"]:
        return None
    average, places = tier["queue_seconds"] / tier["queued"], tier.settings.max_concurrency
    says = f"{number} calls waited for {tier.name}, {average:.0f} s on average: "
    says += f"allow it more than {places} at once, if its server can handle them."
    return tier.advise(says, "max_concurrency", 2 * places)


def limit_that_cuts(tier: Tier) -> Advice | None:
    if not (number := tier.often("replies_cut", tier["attempts"], SELDOM)):
        return None
    limit = tier.rules.token_budget.max_output_tokens
    says = f"{number} replies of {tier.name} reached the limit of {limit:,} tokens."
    setting = "reliability.token_budget.max_output_tokens"
    return Advice(says, setting, f"max_output_tokens: {2 * limit}")


def window_too_small(tier: Tier) -> Advice | None:
    if not (number := tier.often("failed:context_overflow", tier["attempts"], SELDOM)):
        return None
    window = tier.settings.context_window
    says = f"{number} prompts were too long for {tier.name}: give its server a larger window, "
    says += f"or set the window that it really has (now {window:,})."
    return tier.advise(says, "context_window", window // 2)


RULES: Final[tuple[Callable[[Tier], Advice | None], ...]] = (
    tool_often_wrong,
    calls_as_text,
    tier_mostly_left,
    queue_always_full,
    limit_that_cuts,
    window_too_small,
)


def advice(by_tier: Mapping[str, Sums], settings: Settings) -> list[dict[str, Any]]:
    """Return advice as JSON for tiers that the settings still have, in the chain's order."""
    entries = []
    for name in dict.fromkeys([*settings.reliability.escalation.chain, *settings.tiers]):
        tier = Tier(name, by_tier.get(name, {}), settings)
        for rule in RULES:
            if (tip := rule(tier)) is not None:
                entries.append({"rule": rule.__name__, "tier": name, **tip._asdict()})
    return entries
