"""Token budgets: which limits apply to an exchange, what a call may cost, what is refused.

Pure functions. The store keeps the counts (``state/store.py``), ``reservation.py`` waits for room,
``books.py`` applies the policy.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping, Sequence
from functools import lru_cache
from hashlib import blake2b
from math import ceil
from typing import Any, Literal

from ..engine.exchange import Exchange
from ..engine.verdicts import Failure, rejected
from ..errors import ProxyError
from ..settings import TokenBudgetSettings, TokenLimits
from ..state.store import ESTIMATED, Limit
from ..wire.blocks import dumped
from ..wire.prompt_size import TOKENS_OF_TEMPLATE
from ..wire.usage import output_limit

# Tokens of an image or a recording in any form: OpenAI's high detail takes up to 1,500, Qwen2.5-VL
# up to 16,384 if the image is not downscaled.
MEDIUM = 4096
_MEDIA = re.compile(
    rb'"type":"(?:image_url|image|input_image|computer_screenshot|input_audio|audio|video(?:_url)?)"'
)
# Their bytes in a request: a `data:` URL, or base64.
_MEDIA_BYTES = re.compile(rb'"(?:url|image_url)":"data:[^"]*"|"data":"[A-Za-z0-9+/]*=*"')
# `retry_after` if only others' reservations are in the way, any of which may end soon.
WAITED_RETRY_SECONDS = 5

Policy = Literal["warn_and_continue", "escalate", "hard_stop"]


def limits_of(session: str | None, key: str, rules: TokenBudgetSettings) -> tuple[Limit, ...]:
    """Return a request's budgets on any tier; none if budgets are off.

    ``session``: the hash of the session that pays, None if unknown. ``key``: the client's API key.
    :func:`tier_limits` returns the budgets of a single tier.
    """
    if not rules.enabled:
        return ()
    limits = []
    if session is not None:
        limits.append(Limit(_session_scope(session), rules.per_session, rolling=False))
    limits.append(_hourly(rules.per_hour))
    if (token_limits := rules.per_key.get(key)) is not None:
        name = f"key:{blake2b(key.encode(), digest_size=8).hexdigest()}"
        limits += _extra(token_limits, session, name)
    return tuple(limits)


@lru_cache
def _hourly(most: int) -> Limit:
    """Return the budget of all sessions together; cached."""
    return Limit("hour", most, rolling=True)


def limits_for(exchange: Exchange, rules: TokenBudgetSettings) -> tuple[Limit, ...]:
    """Return an exchange's budgets on any tier."""
    return limits_of(exchange.request.session.budget_hash, exchange.request.owner, rules)


def tier_limits(exchange: Exchange, tier: str, rules: TokenBudgetSettings) -> tuple[Limit, ...]:
    """Return the budgets of one tier alone (``per_tier``), if it has any."""
    token_limits = rules.per_tier.get(tier)
    if token_limits is None or not rules.enabled:
        return ()
    return tuple(_extra(token_limits, exchange.request.session.budget_hash, f"tier:{tier}"))


def estimated_in(session: str) -> Limit:
    """Return the counter of a session's estimated tokens, which no upstream has counted.

    They count towards the session's budget as well. ``session``: the hash of the session that pays.
    """
    return Limit(_session_scope(session) + ESTIMATED, None, rolling=False)


def _session_scope(session: str) -> str:
    return f"session:{session}"


def _extra(token_limits: TokenLimits, session: str | None, name: str) -> list[Limit]:
    limits = []
    if token_limits.per_session is not None and session is not None:
        scope = f"{_session_scope(session)}:{name}"
        limits.append(Limit(scope, token_limits.per_session, rolling=False))
    if token_limits.per_hour is not None:
        limits.append(Limit(name, token_limits.per_hour, rolling=True))
    return limits


def policy_for(exchange: Exchange, rules: TokenBudgetSettings) -> Policy:
    """Return what happens when a budget is used up; a bypass doesn't stop the counting."""
    bypassed = "budget" in exchange.request.controls.bypass
    return "warn_and_continue" if bypassed else rules.policy


def spent_tiers(
    exchange: Exchange, used: Mapping[str, int], rules: TokenBudgetSettings
) -> frozenset[str]:
    """Return the tiers whose own budget is used up.

    ``policy: escalate`` refuses nobody, so a tier that the client names by header is not included.
    """
    policy = policy_for(exchange, rules)
    if policy == "warn_and_continue" or not rules.per_tier:
        return frozenset()
    route = exchange.request.route
    client_named = exchange.request.controls.tier is not None and policy == "escalate"
    return frozenset(
        tier
        for tier in (*route.tiers, *route.cheaper)
        if share_used(tier_limits(exchange, tier, rules), used) >= 1.0
        and not (client_named and tier == route.first)
    )


def most_output(key: str, tier: str, rules: TokenBudgetSettings) -> int:
    """Return the operator's limit on one reply, in tokens. ``key``: the client's API key."""
    limit = rules.max_output_tokens
    for token_limits in (rules.per_key.get(key), rules.per_tier.get(tier)):
        if token_limits is not None and token_limits.max_output_tokens is not None:
            limit = min(limit, token_limits.max_output_tokens)
    return limit


def most_asked(exchange: Exchange, tier: str, rules: TokenBudgetSettings) -> int:
    """Return the limit on one reply, in tokens: the operator's, or the client's if smaller."""
    client_limit = exchange.request.max_tokens
    limit = most_output(exchange.request.owner, tier, rules)
    if rules.enabled and rules.tool_calls.apply == "enforce":
        hard = rules.tool_calls
        limit = min(limit, hard.max_tokens if client_limit else hard.default_max_tokens)
    return min(client_limit, limit) if client_limit else limit


def most_read(body: Mapping[str, Any], window: int = sys.maxsize) -> int:
    """Return the most tokens that a request's prompt can cost.

    An estimate is too low for digits, hex or base64. But each token of text has at least one byte,
    and no usage above a tier's ``window`` (in tokens) is believed.
    """
    raw = dumped(body)
    if media := len(_MEDIA.findall(raw)):
        raw = _MEDIA_BYTES.sub(b"", raw)
    return min(len(raw) + TOKENS_OF_TEMPLATE + MEDIUM * media, window)


def most_written(body: Mapping[str, Any]) -> int:
    """Return the tokens of all choices together, if each reaches its limit."""
    return int(output_limit(body) or 0) * _choices(body)


def least_left(body: Mapping[str, Any]) -> int:
    """Return how many tokens a budget must have left for a call.

    One suffices for one choice: few replies reach their limit, so a budget is used to its end and
    exceeded by at most one reply. Several choices must fit with all they may write.
    """
    return most_written(body) if _choices(body) > 1 else 1


def _choices(body: Mapping[str, Any]) -> int:
    return int(body.get("n") or 1)


def share_used(limits: Sequence[Limit], used: Mapping[str, int]) -> float:
    """Return the used share of the most used budget; it may exceed 1.0."""
    largest = 0.0
    for limit in limits:
        if limit.most:
            largest = max(largest, used.get(limit.scope, 0) / limit.most)
    return largest


def crossed(amounts: Mapping[Limit, int], used: Mapping[str, int], threshold: float) -> list[Limit]:
    """Return the budgets that reach ``threshold`` (a share of their limit) with these tokens.

    ``amounts``: the new tokens by budget. ``used``: each scope's tokens before them.
    """
    return [
        limit
        for limit, tokens in amounts.items()
        if limit.most
        and used.get(limit.scope, 0) < threshold * limit.most <= used.get(limit.scope, 0) + tokens
    ]


def refusal(
    limit: Limit, used: int, resets_in: float, *, waited: bool, tier_only: bool = False
) -> Failure:
    """Return the refusal (429) of a request that doesn't fit a budget.

    ``used``: the budget's tokens so far. ``resets_in``: seconds until it has room again.
    ``waited``: whether only others' reservations were in the way, and waiting didn't help.
    ``tier_only``: the budget is one tier's own, so another tier may take the request.
    """
    scope = scope_name(limit)
    seconds = WAITED_RETRY_SECONDS if waited else max(1, ceil(resets_in))
    message = f"the token budget of this {scope} is used up: {used} of {limit.most}"
    if scope == "session":
        session = limit.scope.split(":")[1][:12]
        message += f"; `mlx-stack-proxy sessions {session} --delete` resets it"
    if waited:
        message = (
            f"running requests may need the rest of this {scope}'s token budget "
            f"({used} of {limit.most} are used), and waiting for them did not help"
        )
    extra = {"scope": scope, "used": used, "limit": limit.most, "retry_after": seconds}
    error = ProxyError(429, "budget_exceeded", message, extra=extra, retry_after=seconds)
    return rejected(error, tier_only=tier_only)


def scope_name(limit: Limit) -> str:
    """Return the kind of a budget, as a word from a fixed set: session, hour, key, tier, cloud."""
    parts = limit.scope.split(":")
    return parts[2] if len(parts) > 3 else parts[0]
