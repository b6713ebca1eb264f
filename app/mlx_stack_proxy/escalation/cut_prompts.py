"""Finds servers that cut a prompt and say nothing: Ollama drops all but its ``num_ctx`` tokens.

A server's count of the prompt then lies far under what was sent. It is believed if two replies in
a row say the same. Some servers count only what is new to their cache; so a count that can be that
of the newest messages says nothing, nor does one along with cached tokens.
"""

from __future__ import annotations

from ..engine.request import Request
from ..wire.delta import Usage
from ..wire.prompt_size import BYTES_PER_TOKEN, estimate_prompt_tokens
from ..wire.usage import SLACK
from .learned import LEAST_WINDOW

# Text has up to 9 bytes a token (long runs of blanks), where the estimate takes 3.5.
LEAST_SHARE = 3


class CutPrompts:
    """The last suspicious count of each tier. All exchanges share one instance."""

    def __init__(self) -> None:
        self._suspicious: dict[str, int] = {}  # by tier, in tokens

    def record(self, tier: str, request: Request, usage: Usage | None) -> int:
        """Record a reply's usage. Return the tokens to which its prompt was cut; 0: it wasn't."""
        if usage is None or usage.counted_by_litellm or usage.prompt_tokens < LEAST_WINDOW:
            return 0
        count, before = usage.prompt_tokens, self._suspicious.get(tier)
        # Most requests need no estimate. A picture has few tokens for its bytes, never more.
        most = LEAST_SHARE * count
        is_far_under = request.size > most * BYTES_PER_TOKEN and request.prompt_tokens > most
        if usage.cached_tokens or not is_far_under:
            if before is not None and (usage.cached_tokens or count > before + SLACK):
                del self._suspicious[tier]  # it counts, or reads, otherwise
            return 0
        if _may_be_new_only(count, request):
            return 0
        self._suspicious[tier] = count
        return count if before is not None and abs(count - before) <= SLACK else 0


def _may_be_new_only(count: int, request: Request) -> bool:
    """Whether a count can be that of the last message, or of all since the assistant's last."""
    messages = request.body["messages"]
    turns = [place for place, one in enumerate(messages) if one.get("role") == "assistant"]
    for first in {len(messages) - 1, turns[-1] + 1 if turns else len(messages) - 1}:
        new = estimate_prompt_tokens({"messages": messages[first:]})
        if new <= LEAST_SHARE * count and count <= 2 * new + LEAST_WINDOW:
            return True
    return False
