"""The request of an attempt: the client's own, for this tier, corrected if it is a retry."""

from __future__ import annotations

from dataclasses import dataclass

from ..settings import Settings
from . import correction
from .exchange import Exchange, Request
from .next_step import Retry
from .prompt_size import fitting
from .reply import Reply
from .verdicts import InvalidToolCall, Verdict


@dataclass(frozen=True, slots=True)
class Before:
    """The attempt that a retry follows."""

    reply: Reply
    verdict: Verdict | None
    retry: Retry


def build(exchange: Exchange, settings: Settings, before: Before | None) -> Request:
    """The request for ``exchange.tier``; stages may still rewrite it."""
    body = dict(exchange.request.body)
    tier = settings.tiers.get(exchange.tier)
    if tier is not None:
        body["model"] = tier.model
        body.update(tier.params)
    if settings.upstream.stream == "always" or exchange.request.stream:
        body["stream"] = True
        body["stream_options"] = {**(body.get("stream_options") or {}), "include_usage": True}
    else:
        body.pop("stream_options", None)
    if body.get("max_tokens") is None and body.get("max_completion_tokens") is None:
        # Also where the budget stage is off: mlx-lm's own limit of 512 cuts files in two.
        limit = settings.reliability.token_budget.max_output_tokens
        body["max_tokens"] = fitting(limit, tier, exchange.request)
    if before is not None and isinstance(before.verdict, InvalidToolCall):
        rules = settings.reliability.tool_validation
        if before.retry.correct:
            body["messages"] = correction.corrected(
                exchange.request.body,
                before.reply,
                before.verdict,
                role=rules.correction_role,
                placement=tier.hint_placement if tier is not None else "user",
                with_schema=before.retry.last,
            )
        local = tier is not None and tier.local
        warmer = correction.raised_temperature(body, before.retry.number, local=local)
        if warmer is not None:
            body["temperature"] = warmer
    return Request(exchange.tier, body)
