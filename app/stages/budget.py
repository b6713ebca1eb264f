"""How long a reply may get: a limit is always sent upstream (DESIGN §8).

mlx-lm's own default is 512 tokens, which cuts whole files in two; no limit at all lets a small
model write until its window is full.
"""

from __future__ import annotations

from typing import Any

from ..core.budgets import fitting, most_asked
from ..core.events import Event, ReasoningDelta, TextDelta, ToolCallDelta
from ..core.exchange import Exchange, Incident, Request
from ..core.pipeline import StageState
from ..core.reply import Reply
from ..core.verdicts import Cut, OutputTruncated
from ..settings import Settings, TierSettings

# Parameters that carry text a model writes at length: with one of these offered, an agent may be
# writing a whole file, and the limits for mere calls would cut it.
FREE_TEXT_PARAMETERS = frozenset(
    {"content", "contents", "new_content", "text", "insert_text", "file_text", "body", "message"}
    | {"code", "script", "source", "new_source", "html", "markdown", "patch", "diff"}
    | {"new_string", "new_str", "old_string", "old_str", "replacement"}
)
SEEN_AT_LEAST = 4  # one in so many tokens, in a reply of which the most has come
_PIECES = (TextDelta, ReasoningDelta, ToolCallDelta)


class Budget:
    """Puts ``max_tokens`` (or ``max_completion_tokens``, as the client spells it) in place."""

    name = "budget"
    bypass = "budget"

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._budget = settings.reliability.token_budget
        self._tiers = settings.tiers

    def open(self, exchange: Exchange) -> StageState:
        return _State(self, exchange)

    def full_limit(self, exchange: Exchange, tier: str) -> int:
        """The limit without the rules for tool calls, in tokens."""
        return most_asked(exchange, tier, self._settings)

    def limit(self, exchange: Exchange, tier: str) -> int:
        """The limit to send, in tokens, before the window is looked at."""
        asked = exchange.request.max_tokens
        full = self.full_limit(exchange, tier)
        rules = self._budget.tool_calls
        if not exchange.request.tools or rules.apply == "never":
            return full
        if self._writes_at_length(exchange, self._tiers.get(tier)):
            return full
        return min(full, rules.max_tokens if asked else rules.default_max_tokens)

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


class _Written:
    """What has come of one choice. ``end``: where its text passed the limit, in characters."""

    __slots__ = ("chars", "end", "tokens")

    def __init__(self) -> None:
        self.tokens = 0  # at least so many
        self.chars = 0  # of its text
        self.end: int | None = None


class _State(StageState):
    def __init__(self, stage: Budget, exchange: Exchange) -> None:
        self._stage = stage
        self._exchange = exchange
        self._sent = 0  # tokens: the limit that went upstream,
        self._full = 0  # and the one that would have without the rules for tool calls
        self._choices = exchange.request.body.get("n") or 1
        self._tokens = 0  # of all choices that came, at least
        self._written: dict[int, _Written] = {}
        self._is_over = False  # a choice has gone on beyond the limit

    def on_event(self, event: Event) -> Cut | None:
        """Cut what goes on beyond a limit that upstream was told and does not keep."""
        if not isinstance(event, _PIECES):
            return None
        written = self._written.get(event.choice)
        if written is None:
            written = self._written[event.choice] = _Written()
        # No piece has less than one token, and no token holds parts of two words: so there are at
        # least as many tokens as words.
        tokens = 1 if isinstance(event, ToolCallDelta) else len(event.text.split()) or 1
        self._tokens += tokens
        written.tokens += tokens
        if self._sent and written.tokens > self._sent and written.end is None:
            self._note_end(written, event, tokens)
        if isinstance(event, TextDelta):
            written.chars += len(event.text)
        over = self._tokens > self._sent * self._choices > 0
        return Cut("max_output_tokens", "length") if over else None

    def _note_end(self, written: _Written, last: Event, tokens: int) -> None:
        """A choice passes the limit with this piece, which has so many tokens."""
        written.end = written.chars
        if isinstance(last, TextDelta):
            written.end += len(_words(last.text, self._sent - (written.tokens - tokens)))
        if not self._is_over:
            self._is_over = True
            self._exchange.reply_notes["Truncated"] = "max_output_tokens"
            self._exchange.incidents.append(Incident("truncated", ("max_output_tokens",)))

    def mend(self, reply: Reply) -> None:
        """Take out what is too much."""
        for index, written in self._written.items():
            choice = reply.choices.get(index)
            if written.end is None or choice is None:
                continue
            choice.text = choice.text[: written.end]
            if choice.finish_reason is not None and not choice.tool_calls:
                choice.finish_reason = "length"
            reply.mended.add(index)

    def judge(self, reply: Reply) -> OutputTruncated | None:
        """A reply that a limit cut is worth another try where the client did not set it.

        Or where next to nothing came of it: mlx_lm.server says nothing of a tool call until it is
        whole, so that is one without an end, most likely; the next tier may find one.
        """
        if self._is_over:
            return None  # cut by us: it would go on again
        if not any(c.finish_reason == "length" for c in reply.choices.values()):
            return None
        if self._sent < self._full:
            return OutputTruncated("tool_calls")
        unseen = self._exchange.request.tools and self._is_unseen(reply)
        return OutputTruncated("unseen") if unseen else None

    def _is_unseen(self, reply: Reply) -> bool:
        """Whether next to nothing came of what the model wrote.

        No token is shorter than a byte, so there were many of which none came. A cloud's model may
        have thought in secret.
        """
        written, usage = reply.written(), reply.usage
        if not written:
            return True
        tier = self._stage.tier(self._exchange.tier)
        if tier is None or not tier.local or usage is None or usage.counted_by_litellm:
            return False
        return written * SEEN_AT_LEAST < usage.completion_tokens

    def on_request(self, request: Request) -> None:
        tier = self._stage.tier(request.tier)
        client = self._exchange.request
        limit = fitting(self._stage.limit(self._exchange, request.tier), tier, client)
        full = self._stage.full_limit(self._exchange, request.tier)
        self._sent = limit
        self._full = fitting(full, tier, client) if full > limit else limit
        body = request.body
        asked = client.body
        spellings = [k for k in ("max_tokens", "max_completion_tokens") if asked.get(k) is not None]
        for spelling in spellings or ["max_tokens"]:
            body[spelling] = limit


def _words(text: str, most: int) -> str:
    """The text to the end of so many of its words."""
    if most <= 0:
        return ""
    rest = text.split(None, most)[most:]
    return text[: len(text) - len(rest[0])].rstrip() if rest else text


def takes_free_text(tool: Any) -> bool:
    """Whether a tool has a parameter for text written at length, by the parameter's name."""
    function = tool.get("function") if isinstance(tool, dict) else None
    parameters = function.get("parameters") if isinstance(function, dict) else None
    properties = parameters.get("properties") if isinstance(parameters, dict) else None
    return isinstance(properties, dict) and not FREE_TEXT_PARAMETERS.isdisjoint(properties)
