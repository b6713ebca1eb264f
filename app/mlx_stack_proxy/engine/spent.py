"""The tokens of a call: how many it used, and how many fit a window (pure estimates)."""

from __future__ import annotations

from msgspec import Struct

from ..wire.prompt_size import BYTES_PER_OUTPUT_TOKEN, TOKENS_OF_TEMPLATE
from ..wire.reply import Reply
from .request import Request

# Source code may have 2.8 bytes a token where the estimate assumes 3.5.
ESTIMATE_ERROR = 1.25
MIN_ROOM = 256  # output tokens to request even if the window is full by estimate


class TokensUsed(Struct, frozen=True):
    """Tokens of one upstream call."""

    prompt: int
    output: int
    estimated: bool  # upstream counted none or only some of them

    @property
    def total(self) -> int:
        return self.prompt + self.output


def tokens_used_by(request: Request, reply: Reply, *, count_cached: bool) -> TokensUsed:
    """Return what a call has used: upstream's count, else an estimate of at least one token.

    ``count_cached``: also count the prompt tokens that upstream read from its cache.
    """
    usage = reply.usage
    if usage is None or not (usage.prompt_tokens or usage.completion_tokens):
        # Each piece of a reply has at least one token.
        output = max(-(-reply.written() // BYTES_PER_OUTPUT_TOKEN), reply.pieces)
        return TokensUsed(max(request.prompt_tokens, 1), output, estimated=True)
    cached = 0 if count_cached else min(usage.cached_tokens, usage.prompt_tokens)
    # Pieces that followed the usage: some servers count in the first chunk, or in every chunk.
    later = reply.pieces - reply.counted
    output = usage.completion_tokens + later
    return TokensUsed(usage.prompt_tokens - cached, output, estimated=later > 0)


def fitting(limit: int, window: int, request: Request, *, ours: bool) -> int:
    """Return ``limit`` output tokens, or fewer if the ``window`` has less room left.

    ``ours``: the client did not set the limit. Then it also allows for the error of the prompt's
    estimate, up to half of the room: some servers refuse a request whose prompt and limit together
    exceed the window.
    """
    spare = window - limit
    if request.is_within(int((spare - TOKENS_OF_TEMPLATE) / ESTIMATE_ERROR) if ours else spare):
        return limit
    prompt = request.prompt_tokens
    room = window - prompt
    if ours:
        room = max(window - cautious_estimate(prompt), room // 2)
    return min(limit, max(room, MIN_ROOM))


def cautious_estimate(prompt: int) -> int:
    """Return an estimate of a prompt's tokens that is rarely too low."""
    return int(prompt * ESTIMATE_ERROR) + TOKENS_OF_TEMPLATE
