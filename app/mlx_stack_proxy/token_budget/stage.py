"""Applies budgets to an exchange's tier and to the length of its replies.

A session that has used up its budget starts on a cheaper tier under ``policy: escalate``. Usage is
counted in ``books.py``. A limit on the reply goes upstream with every request, and is enforced
here.

mlx-lm's default is 512 tokens, which cuts whole files in two; without a limit a small model may
write until its window is full. If upstream ignores the limit, the stage counts the pieces of the
reply, each as one token, cuts the reply and shortens its text. The limits for tool calls are sent
only with ``apply: enforce``, because they may cut a call in the middle; otherwise loop detection's
own limits are stricter beyond them.
"""

from __future__ import annotations

import sys

from ..engine.exchange import Exchange
from ..engine.outcome import Incident
from ..engine.pipeline import Stage, StageState
from ..engine.request import UpstreamRequest
from ..engine.spent import fitting
from ..engine.steps import Start
from ..engine.tier_view import TierView, fits
from ..engine.verdicts import Cut, Failure, truncated
from ..settings import Settings
from ..wire.delta import Delta, Usage
from ..wire.reply import ChoiceReply, Reply
from .budgets import most_asked

SEEN_AT_LEAST = 4  # a reply with fewer bytes than its tokens divided by this is nearly invisible


class TokenBudget(Stage):
    """Downgrades sessions over their budget; sets ``max_tokens`` (or its other name)."""

    name = "budget"
    bypass = "budget"

    def __init__(self, settings: Settings) -> None:
        self._budget = settings.reliability.token_budget
        self._settings = settings
        self.tiers = settings.tiers

    def admit(self, exchange: Exchange, start: Start, view: TierView) -> Start:
        if not view.over_budget and start.tier not in view.over_budget_on:
            return start
        return downgraded(exchange, self._settings, view) or start

    def open(self, exchange: Exchange) -> StageState:
        return _BudgetState(self, exchange)

    def limit(self, exchange: Exchange, request: UpstreamRequest) -> int:
        """Return the limit to send, in tokens."""
        limit = most_asked(exchange, request.tier, self._budget)
        if request.most_output is not None:
            return min(limit, request.most_output)
        tier, window = self.tiers.get(request.tier), request.learned_window
        if tier is not None:
            window = min(tier.context_window, window)
        ours = exchange.request.max_tokens != limit
        return fitting(limit, window, exchange.request, ours=ours)


def _tokens(choice: ChoiceReply) -> int:
    """Return a lower bound of a choice's tokens: each piece has at least one."""
    return choice.thought.count + choice.written.count + choice.others


class _BudgetState(StageState):
    def __init__(self, stage: TokenBudget, exchange: Exchange) -> None:
        self._stage = stage
        self._exchange = exchange
        self._sent_limit = 0  # tokens: the limit that went upstream
        self._expected_choices = exchange.request.body.get("n") or 1
        self._ends: dict[int, int] = {}  # by choice: the index where its text exceeded the limit
        self._too_long = False  # whether a choice exceeded the limit
        self._shortened = False  # the reply was cut, or made shorter

    def watch(self, reply: Reply, delta: Delta) -> Cut | None:
        """Cut a reply that exceeds the limit that was sent upstream."""
        limit = self._sent_limit
        if reply.pieces <= limit or not limit:
            return None
        for piece in delta.choices:
            choice = reply.choices.get(piece.index)
            if choice is None:
                continue
            # If the reasoning alone exceeds the limit, the answer still gets the whole limit.
            thoughts, text = choice.thought.count, piece.delta.content or ""
            room = limit - thoughts if thoughts < limit else limit
            if text and (surplus := choice.written.count - room) > 0:
                beyond = sum(map(len, (delta.texts or [text])[-surplus:]))
                self._ends.setdefault(piece.index, choice.written.size - beyond)
            self._too_long = self._too_long or _tokens(choice) > limit
        over = sum(map(_tokens, reply.choices.values())) > limit * self._expected_choices
        return Cut("max_output_tokens", "length") if over else None

    def mend(self, reply: Reply) -> None:
        """Remove text beyond the limit, unless the client has it already.

        Complete calls stay, and so does the reasoning before the text.
        """
        if not self._sent_limit:
            return
        self._shortened = reply.cut and self._too_long
        for index, choice in reply.choices.items():
            keep = self._ends.get(index, sys.maxsize)
            if keep >= len(choice.text):
                continue
            self._shortened = True
            choice.text = choice.text[: max(keep, reply.flowed)]
            if choice.finish_reason is not None and not choice.tool_calls:
                choice.finish_reason = "length"
            reply.mended.add(index)
        if self._shortened:
            self.remarks.reply_notes["Truncated"] = "max_output_tokens"
            self.remarks.incidents.append(Incident("truncated", ("max_output_tokens",)))

    def _models_usage(self, reply: Reply) -> Usage | None:
        """Return the model server's own usage, if all tokens that it counts are in the reply.

        A cloud's usage may count reasoning that the reply doesn't show.
        """
        tier, usage = self._stage.tiers.get(self._exchange.tier), reply.usage
        if tier is None or not tier.local or usage is None or usage.counted_by_litellm:
            return None
        return usage

    def judge(self, reply: Reply) -> Failure | None:
        """Return a truncation if a limit cut the reply and nearly nothing of it arrived.

        mlx_lm.server sends nothing of a tool call until the call is complete, so the model was
        probably writing a call without an end. The next tier may end it.
        """
        if self._shortened:
            return None  # our own limit cut the reply: another attempt would run on, too
        if not any(c.finish_reason == "length" for c in reply.choices.values()):
            return None
        unseen = self._exchange.request.tools and self._is_unseen(reply)
        return truncated("unseen") if unseen else None

    def _is_unseen(self, reply: Reply) -> bool:
        """Whether nearly nothing arrived of what the model wrote.

        A token has at least one byte, so a reply with fewer bytes than tokens has lost some.
        """
        written, usage = reply.written(), self._models_usage(reply)
        if not written:
            return True
        return usage is not None and written * SEEN_AT_LEAST < usage.completion_tokens

    def on_request(self, request: UpstreamRequest) -> None:
        limit = self._sent_limit = self._stage.limit(self._exchange, request)
        asked = self._exchange.request.max_tokens
        if asked is not None and limit < asked:
            self.remarks.reply_notes["Max-Tokens"] = f"{limit};asked={asked}"
        client_body = self._exchange.request.body
        newly_spelt = client_body.get("max_completion_tokens") is not None
        if not newly_spelt or client_body.get("max_tokens") is not None:
            request.body["max_tokens"] = limit
        if newly_spelt:
            request.body["max_completion_tokens"] = limit


def downgraded(exchange: Exchange, settings: Settings, view: TierView) -> Start | None:
    """Return the start of a session that has used up its budget, under ``policy: escalate``.

    It is ``downgrade_tier``, or the next cheapest tier that can take the request; the exchange
    stays there. None: the client named a tier by header, or no cheaper tier can take the request:
    each one is too small, degraded, without budget, or in a cloud that the request may not use.
    """
    if exchange.request.controls.tier is not None or not exchange.request.route.tiers:
        return None
    route = exchange.request.route
    first = route.first
    for tier in route.cheaper:
        forbidden_cloud = not settings.tiers[tier].local and tier not in route.tiers
        unusable = forbidden_cloud or tier in view.passed_over or tier in view.closed
        if not unusable and fits(tier, exchange.request, settings, view):
            return Start(tier, "budget_exceeded" if tier != first else "", stays=True)
    return None
