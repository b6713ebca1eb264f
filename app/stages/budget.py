"""How long a reply may get: a limit is always sent upstream (DESIGN §8).

mlx-lm's own default is 512 tokens, which cuts whole files in two; no limit at all lets a small
model write until its window is full.
"""

from __future__ import annotations

from typing import Any

from ..core.exchange import Exchange, Request
from ..core.pipeline import StageState
from ..core.prompt_size import fitting
from ..core.reply import Reply
from ..core.verdicts import OutputTruncated
from ..settings import Settings, TierSettings

# Parameters that carry text a model writes at length: with one of these offered, an agent may be
# writing a whole file, and the limits for mere calls would cut it.
FREE_TEXT_PARAMETERS = frozenset(
    {"content", "contents", "new_content", "text", "insert_text", "file_text", "body", "message"}
    | {"code", "script", "source", "new_source", "html", "markdown", "patch", "diff"}
    | {"new_string", "new_str", "old_string", "old_str", "replacement"}
)


class Budget:
    """Puts ``max_tokens`` (or ``max_completion_tokens``, as the client spells it) in place."""

    name = "budget"
    bypass = "budget"

    def __init__(self, settings: Settings) -> None:
        self._budget = settings.reliability.token_budget
        self._tiers = settings.tiers

    def open(self, exchange: Exchange) -> StageState:
        return _State(self, exchange)

    def full_limit(self, exchange: Exchange) -> int:
        """The limit without the rules for tool calls, in tokens."""
        asked = exchange.request.max_tokens
        most = self._budget.max_output_tokens
        return min(asked, most) if asked else most

    def limit(self, exchange: Exchange, tier: TierSettings | None) -> int:
        """The limit to send, in tokens, before the window is looked at."""
        asked = exchange.request.max_tokens
        most = self._budget.max_output_tokens
        rules = self._budget.tool_calls
        tools = exchange.request.tools
        if tools and rules.apply != "never" and not self._writes_at_length(exchange, tier):
            return (
                min(asked, rules.max_tokens, most) if asked else min(rules.default_max_tokens, most)
            )
        return self.full_limit(exchange)

    def _writes_at_length(self, exchange: Exchange, tier: TierSettings | None) -> bool:
        if exchange.retried.get("output_truncated"):
            return True  # the one retry that a cut by these limits is worth
        if self._budget.tool_calls.apply == "always":
            return False
        return (
            exchange.session_was_cut
            or (tier is not None and tier.reasoning)
            or any(takes_free_text(tool) for tool in exchange.request.tools)
        )

    def tier(self, name: str) -> TierSettings | None:
        return self._tiers.get(name)


class _State(StageState):
    def __init__(self, stage: Budget, exchange: Exchange) -> None:
        self._stage = stage
        self._exchange = exchange
        self._sent = 0  # tokens: the limit that went upstream,
        self._full = 0  # and the one that would have without the rules for tool calls

    def judge(self, reply: Reply) -> OutputTruncated | None:
        """A reply that a limit cut which the client did not set is worth another try."""
        if not any(c.finish_reason == "length" for c in reply.choices.values()):
            return None
        return OutputTruncated("tool_calls") if self._sent < self._full else None

    def on_request(self, request: Request) -> None:
        tier = self._stage.tier(request.tier)
        client = self._exchange.request
        limit = fitting(self._stage.limit(self._exchange, tier), tier, client)
        full = self._stage.full_limit(self._exchange)
        self._sent = limit
        self._full = fitting(full, tier, client) if full > limit else limit
        body = request.body
        asked = client.body
        spellings = [k for k in ("max_tokens", "max_completion_tokens") if asked.get(k) is not None]
        for spelling in spellings or ["max_tokens"]:
            body[spelling] = limit


def takes_free_text(tool: Any) -> bool:
    """Whether a tool has a parameter for text written at length, by the parameter's name."""
    function = tool.get("function") if isinstance(tool, dict) else None
    parameters = function.get("parameters") if isinstance(function, dict) else None
    properties = parameters.get("properties") if isinstance(parameters, dict) else None
    return isinstance(properties, dict) and not FREE_TEXT_PARAMETERS.isdisjoint(properties)
