"""Builds the request of an attempt.

It is the client's request without the fields that control LiteLLM, with the tier's model and
parameters. A later attempt's request also tells the model something: a correction or a hint.
"""

from __future__ import annotations

import sys
from typing import Any

from msgspec.structs import replace

from ..settings import Settings, TierSettings
from ..wire import strict_template
from ..wire.usage import window_of
from . import correction, own_words
from .exchange import Exchange
from .litellm_controls import without_controls
from .outcome import Outcome
from .request import UpstreamRequest
from .spent import fitting
from .steps import Move, Retry
from .tier_view import TierView
from .verdicts import InvalidToolCall, is_of_reply

_NOTHING_KNOWN = TierView()


def build(
    exchange: Exchange, settings: Settings, view: TierView = _NOTHING_KNOWN
) -> UpstreamRequest:
    """Return the request for ``exchange.tier``; stages may still rewrite it.

    ``view``: what errors have taught about the tiers.
    """
    body = dict(without_controls(exchange.request.body))
    tier = settings.tiers.get(exchange.tier)
    window, learned = window_of(tier, settings), view.windows.get(exchange.tier, sys.maxsize)
    most_output, direct = exchange.most_output, exchange.tier in exchange.request.route.direct
    if tier is not None:
        cloud = settings.reliability.escalation.cloud_fallback
        body["model"] = cloud.model if direct and cloud is not None else tier.model
        body.update(tier.params)
    if settings.upstream.stream == "always" or exchange.request.stream:
        body["stream"] = True
        body["stream_options"] = {**(body.get("stream_options") or {}), "include_usage": True}
    else:
        body.pop("stream_options", None)
    if body.get("max_tokens") is None and body.get("max_completion_tokens") is None:
        # Even if the client bypasses budgets: mlx-lm's default of 512 tokens cuts files in two.
        rules = settings.reliability.token_budget
        if rules.enabled:
            room = min(window, learned) if tier is not None else sys.maxsize
            body["max_tokens"] = fitting(rules.max_output_tokens, room, exchange.request, ours=True)
    if most_output is not None:
        for name in ("max_tokens", "max_completion_tokens"):
            if body.get(name) is not None:
                body[name] = most_output
    if not direct:
        # Retries and fallbacks of LiteLLM's own would multiply the attempts.
        body["num_retries"] = 0
        body["disable_fallbacks"] = True
    strict = exchange.strict or exchange.tier in view.strict
    if strict and strict_template.needs_rewriting(body["messages"]):
        body["messages"] = strict_template.rewritten(body["messages"])
    if exchange.steps and not exchange.plain:
        _add_corrections(body, exchange, settings, tier)
    return UpstreamRequest(exchange.tier, body, window, learned, most_output)


def _add_corrections(
    body: dict[str, Any], exchange: Exchange, settings: Settings, tier: TierSettings | None
) -> None:
    """Add what the earlier attempts call for: a correction, a hint, another sampling."""
    outcome, step = _newest_lesson(exchange)
    if outcome is None or step is None:
        return
    placement = own_words.placement_on(tier, in_tool_result=exchange.hint_in_tool_result)
    if isinstance(outcome.verdict, InvalidToolCall) and outcome.reply is not None and step.correct:
        body["messages"] = correction.corrected(
            {**exchange.request.body, "messages": body["messages"]},
            outcome.reply,
            outcome.verdict,
            role=settings.reliability.tool_validation.correction_role,
            placement=placement,
            with_schema=isinstance(step, Retry) and step.last,
        )
    if exchange.hint:
        body["messages"] = own_words.place(
            list(body["messages"]), exchange.hint, role="user", placement=placement
        )
    # The same sampling of the same prompt would likely bring the same reply.
    if isinstance(step, Retry) and is_of_reply(outcome.verdict):
        local = tier is not None and tier.local
        body.update(correction.other_sampling(body, step.number, local=local, warmer=step.warmer))


def _newest_lesson(exchange: Exchange) -> tuple[Outcome, Retry | Move] | tuple[None, None]:
    """Return the newest outcome that teaches the model something, and the step that followed it.

    A retry after a server's failure teaches nothing new: the earlier outcome still counts.
    """
    correct = False
    for outcome, step in zip(reversed(exchange.outcomes), reversed(exchange.steps), strict=True):
        if isinstance(step, Move):
            return outcome, step
        if not isinstance(step, Retry):
            continue
        correct = correct or step.correct
        if is_of_reply(outcome.verdict):
            return outcome, replace(step, correct=correct)
    return None, None
