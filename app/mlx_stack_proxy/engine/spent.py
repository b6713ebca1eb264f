"""The tokens of a call: what it has used, and what fits into a window (estimates, pure)."""

from __future__ import annotations

from msgspec import Struct

from ..wire.prompt_size import BYTES_PER_OUTPUT_TOKEN, TOKENS_OF_TEMPLATE
from ..wire.reply import Reply
from .request import Request

# Source code may have 2.8 bytes a token where the estimate takes 3.5.
ESTIMATE_ERROR = 1.25
MIN_ROOM = 256  # tokens of output to ask for even if the estimate says that the window is full


class Spent(Struct, frozen=True):
    """Tokens of one upstream call."""

    prompt: int
    output: int
    estimated: bool  # upstream counted none of them, or only a part

    @property
    def total(self) -> int:
        return self.prompt + self.output


def spent_by(request: Request, reply: Reply, *, count_cached: bool) -> Spent:
    """Return what a call has used: upstream's count, or else an estimate of at least one token.

    ``count_cached``: count the prompt tokens that upstream took from its cache, too.
    """
    usage = reply.usage
    if usage is None or not (usage.prompt_tokens or usage.completion_tokens):
        # Each piece of a reply has at least one token.
        output = max(-(-reply.written() // BYTES_PER_OUTPUT_TOKEN), reply.pieces)
        return Spent(max(request.prompt_tokens, 1), output, estimated=True)
    cached = 0 if count_cached else min(usage.cached_tokens, usage.prompt_tokens)
    # Pieces that came after the usage: some servers count in the first chunk, or in every chunk.
    later = reply.pieces - reply.counted
    output = usage.completion_tokens + later
    return Spent(usage.prompt_tokens - cached, output, estimated=later > 0)


def fitting(limit: int, window: int, request: Request, *, ours: bool) -> int:
    """Return ``limit`` tokens of output, or fewer if the ``window`` has less room left.

    ``ours``: the client did not set the limit. Then it also leaves room for the error of the
    prompt's estimate, up to half of what is left: some servers refuse a request whose prompt and
    limit together are larger than the window.
    """
    spare = window - limit
    if request.is_within(int((spare - TOKENS_OF_TEMPLATE) / ESTIMATE_ERROR) if ours else spare):
        return limit
    prompt = request.prompt_tokens
    room = window - prompt
    if ours:
        room = max(window - careful(prompt), room // 2)
    return min(limit, max(room, MIN_ROOM))


def careful(prompt: int) -> int:
    """Return an estimate of a prompt's tokens that is seldom too low."""
    return int(prompt * ESTIMATE_ERROR) + TOKENS_OF_TEMPLATE
