"""Detects servers that silently cut a prompt: Ollama drops all but its ``num_ctx`` tokens.

The server's count of the prompt is then far below what was sent. Two such replies in a row are
proof. Some servers count only tokens that are not in their cache; so a count that may be that of
the newest messages is ignored, and so is one next to cached tokens.
"""

from __future__ import annotations

from ..engine.request import Request
from ..wire.delta import Usage
from ..wire.prompt_size import BYTES_PER_TOKEN, estimate_prompt_tokens
from ..wire.usage import SLACK
from .learned import MIN_WINDOW

# Text has up to 9 bytes a token (long runs of blanks), where the estimate assumes 3.5.
MIN_SHARE = 3


class CutPrompts:
    """The last suspicious count of each tier. All exchanges share one instance."""

    def __init__(self) -> None:
        self._suspicious: dict[str, int] = {}  # by tier, in tokens

    def record(self, tier: str, request: Request, usage: Usage | None) -> int:
        """Record a reply's usage. Return the tokens to which its prompt was cut; 0: it wasn't."""
        if usage is None or usage.counted_by_litellm or usage.prompt_tokens < MIN_WINDOW:
            return 0
        count, before = usage.prompt_tokens, self._suspicious.get(tier)
        # Most requests need no estimate. An image has few tokens for its bytes, never more.
        most = MIN_SHARE * count
        is_far_under = request.size > most * BYTES_PER_TOKEN and request.prompt_tokens > most
        if usage.cached_tokens or not is_far_under:
            if before is not None and (usage.cached_tokens or count > before + SLACK):
                del self._suspicious[tier]  # it counts, or reads, differently
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
        if new <= MIN_SHARE * count and count <= 2 * new + MIN_WINDOW:
            return True
    return False
