"""Token budgets: which limits hold for an exchange, what an attempt has used, what is refused.

Pure; keeping the counts is the store's affair, waiting and refusing the shell's.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b

from ..settings import Settings, TokenLimits
from .exchange import ClientRequest, Exchange
from .prompt_size import BYTES_PER_OUTPUT_TOKEN, estimate_prompt_tokens
from .reply import Reply
from .verdicts import Rejected

# Follows a session's scope: what of its tokens no upstream has counted.
ESTIMATED = ":estimated"


@dataclass(frozen=True, slots=True)
class Limit:
    """One budget. ``scope`` names it, e.g. ``session:<hash>``, ``hour``, ``key:<hash>``.

    ``rolling``: over the last 60 minutes, to the minute; else since the session began. ``most``:
    tokens; None only counts.
    """

    scope: str
    most: int | None
    rolling: bool


@dataclass(frozen=True, slots=True)
class Spent:
    """Tokens of one upstream call. ``estimated``: upstream did not say."""

    prompt: int
    output: int
    estimated: bool

    @property
    def total(self) -> int:
        return self.prompt + self.output


def limits_of(exchange: Exchange, settings: Settings) -> tuple[Limit, ...]:
    """The budgets an exchange counts towards; those of its tier are ``tier_limits``."""
    budget = settings.reliability.token_budget
    own = f"session:{exchange.session.budget_hash}"
    limits = [
        Limit(own, budget.per_session, rolling=False),
        Limit("hour", budget.per_hour, rolling=True),
    ]
    key = budget.per_key.get(exchange.owner)
    if key is not None:
        name = f"key:{blake2b(exchange.owner.encode(), digest_size=8).hexdigest()}"
        limits += _extra(key, f"{own}:{name}", name)
    return tuple(limits)


def in_force(exchange: Exchange, settings: Settings) -> tuple[Limit, ...]:
    """The same; none where budgets are off, or left out for this request."""
    left_out = "budget" in exchange.controls.bypass
    enabled = settings.reliability.token_budget.enabled and not left_out
    return limits_of(exchange, settings) if enabled else ()


def tier_limits(exchange: Exchange, tier: str, settings: Settings) -> tuple[Limit, ...]:
    """The budgets of one tier, where it has some."""
    given = settings.reliability.token_budget.per_tier.get(tier)
    if given is None:
        return ()
    own = f"session:{exchange.session.budget_hash}:tier:{tier}"
    return tuple(_extra(given, own, f"tier:{tier}"))


def _extra(given: TokenLimits, session_scope: str, hour_scope: str) -> list[Limit]:
    limits = []
    if given.per_session is not None:
        limits.append(Limit(session_scope, given.per_session, rolling=False))
    if given.per_hour is not None:
        limits.append(Limit(hour_scope, given.per_hour, rolling=True))
    return limits


def most_output(exchange: Exchange, tier: str, settings: Settings) -> int:
    """The most tokens that one reply may have."""
    budget = settings.reliability.token_budget
    found = [budget.max_output_tokens]
    for given in (budget.per_key.get(exchange.owner), budget.per_tier.get(tier)):
        if given is not None and given.max_output_tokens is not None:
            found.append(given.max_output_tokens)
    return min(found)


def most_asked(exchange: Exchange, tier: str, settings: Settings) -> int:
    """The same, or less where the client asks for less."""
    asked = exchange.request.max_tokens
    most = most_output(exchange, tier, settings)
    return min(asked, most) if asked else most


def uncounted(limits: Sequence[Limit]) -> tuple[Limit, ...]:
    """The same scopes, for counting only."""
    return tuple(Limit(limit.scope, None, limit.rolling) for limit in limits)


def share_used(limits: Sequence[Limit], used: Mapping[str, int]) -> float:
    """How much of the most used budget is gone; 1.0: all of it."""
    shares = [used.get(limit.scope, 0) / limit.most for limit in limits if limit.most]
    return max(shares, default=0.0)


def crossed(
    limits: Sequence[Limit], used: Mapping[str, int], tokens: int, threshold: float
) -> list[Limit]:
    """The budgets that ``tokens`` more bring up to ``threshold`` of what they allow."""
    return [
        limit
        for limit in limits
        if limit.most
        and used.get(limit.scope, 0) < threshold * limit.most <= used.get(limit.scope, 0) + tokens
    ]


def spent_by(request: ClientRequest, reply: Reply, *, count_cached: bool) -> Spent:
    """What a call has used: upstream's own count, else an estimate, which is never zero."""
    usage = reply.usage
    if usage is not None and (usage.prompt_tokens or usage.completion_tokens):
        cached = 0 if count_cached else min(usage.cached_tokens, usage.prompt_tokens)
        return Spent(usage.prompt_tokens - cached, usage.completion_tokens, estimated=False)
    output = -(-reply.written() // BYTES_PER_OUTPUT_TOKEN)
    return Spent(max(estimate_prompt_tokens(request.body), 1), output, estimated=True)


def refusal(limit: Limit, used: int, resets_in: float) -> Rejected:
    """What a client is told whose request does not fit (429)."""
    scope = scope_name(limit)
    seconds = max(1, round(resets_in))
    return Rejected(
        429,
        "budget_exceeded",
        f"the token budget of this {scope} is used up: {used} of {limit.most}",
        {"scope": scope, "used": used, "limit": limit.most, "retry_after": seconds},
        retry_after=seconds,
    )


def scope_name(limit: Limit) -> str:
    """A bounded word for a scope: session, hour, key, tier."""
    parts = limit.scope.split(":")
    return parts[2] if len(parts) > 3 else parts[0]
