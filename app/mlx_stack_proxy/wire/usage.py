"""Validates upstream's token counts where they enter the proxy.

A wrong count (such as an unsigned -1, which is 2^64 - 1) would use up shared budgets. If one count
of a ``usage`` can't be true, the whole usage is rejected and replaced by the proxy's own estimate.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from ..settings import Settings, TierSettings
from .field_forms import whole_number
from .reply import Reply

# How far a choice may exceed its limit: some servers count marks or drafts.
SLACK = 64
_CACHED: Final = ("cache_read_input_tokens", "cached_tokens")
_OUTPUT: Final = ("completion_tokens", "output_tokens")
# The counts of a usage, each with its bound: the prompt's, the output's, or the sum.
_PROMPT: Final = ("prompt_tokens", "input_tokens", "cache_creation_input_tokens")
COUNTS: Final = {
    **dict.fromkeys((*_PROMPT, *_CACHED), 0),
    **dict.fromkeys(_OUTPUT, 1),
    "total_tokens": 2,
}
_DETAILS: Final = ("prompt_tokens_details", "input_tokens_details")
_OF_OUTPUT: Final = ("completion_tokens_details", "output_tokens_details")


class Bounds(NamedTuple):
    """The largest believable token counts of a call's usage."""

    prompt: int
    output: int  # of all choices together


def is_believable(usage: Mapping[str, Any], bounds: Bounds) -> bool:
    """Whether each count of a usage is a whole number from 0 up to its bound."""
    limits = (bounds.prompt, bounds.output, bounds.prompt + bounds.output)
    for name, value in usage.items():
        which = COUNTS.get(name)
        if which is not None:
            exact = type(value) is int and 0 <= value <= limits[which]  # nearly always
            if not exact and value is not None and not _is_count(value, limits[which]):
                return False
        elif isinstance(value, dict) and name in (*_DETAILS, *_OF_OUTPUT):
            is_output = name in _OF_OUTPUT
            counts = value.values() if is_output else map(value.get, _CACHED)
            if any(one is not None and not _is_count(one, limits[is_output]) for one in counts):
                return False
    return True


def output_limit(body: Mapping[str, Any]) -> int | None:
    """Return the most output tokens that a request asks for, by both names, as upstream does."""
    limit: int | None = body.get("max_tokens") or body.get("max_completion_tokens")
    return limit


def _is_count(value: Any, limit: int) -> bool:
    if isinstance(value, float) and not value.is_integer():
        return False
    count = whole_number(value)
    return count is not None and 0 <= count <= limit


def window_of(tier: TierSettings | None, settings: Settings) -> int:
    """Return a tier's context window in tokens; the widest one for a model that is no tier."""
    return (
        tier.context_window
        if tier
        else max(any_tier.context_window for any_tier in settings.tiers.values())
    )


class UsageCheck:
    """Checks whether a reply's usages can be true.

    After a usage that is too high, all others are rejected. A usage that ignores what the model has
    written is rejected alone: a later one may count it.
    """

    __slots__ = ("_body", "_plain", "_reply", "_window", "failed", "refused")

    def __init__(self, body: Mapping[str, Any], window: int, reply: Reply) -> None:
        self._body = body  # as sent
        self._window = window  # the model's context window in tokens
        self._reply = reply  # as received before the usage
        self._plain: Bounds | None = None  # the bounds without regard to what was written
        self.failed = False  # whether a usage was impossibly high
        self.refused = False  # whether any usage was rejected

    def __call__(self, usage: Mapping[str, Any]) -> bool:
        if self._plain is None:
            self._plain = self._bounds(0)
        if not self.failed and not is_believable(usage, self._plain):
            self.failed = not is_believable(usage, self._bounds(self._reply.written()))
        written = usage.get("completion_tokens") or usage.get("output_tokens")
        believed = not self.failed and bool(whole_number(written) or not self._reply.pieces)
        self.refused = self.refused or not believed
        return believed

    def _bounds(self, written: int) -> Bounds:
        """Return the bounds that the model's window and the request's limit set.

        ``written``: bytes of the reply; a server that ignores the limit may count that many tokens.
        """
        body, window = self._body, self._window
        choices = body.get("n") or 1
        limit = output_limit(body)
        most = window if limit is None else min(limit + SLACK, window)
        return Bounds(window, max(most * choices, min(written, window * choices)))
