"""Finds the usage in a reply that passes through unparsed, or estimates one.

Only the first and last bytes of the body are kept, because servers send the usage there.
"""

from __future__ import annotations

import json
import re
from typing import Any

from .delta import count_of
from .prompt_size import BYTES_PER_OUTPUT_TOKEN
from .usage import COUNTS, Bounds, is_believable

MAX_HEAD = 16 * 1024  # bytes; Anthropic's streams begin with the prompt's tokens
MAX_TAIL = 64 * 1024  # bytes; all other counts come last
_DECODER = json.JSONDecoder()
_USAGE = re.compile(r'"usage"\s*:\s*(?={)')
_EVENT = b"data:"  # the beginning of each event's data in a stream


class UsageTail:
    """Keeps both ends of a body that arrives in pieces."""

    __slots__ = ("_events", "_head", "_size", "_tail", "disbelieved")

    def __init__(self) -> None:
        self._head = b""
        self._tail = b""
        self._events = 0  # events of a stream; 0 for other bodies
        self._size = 0  # bytes of the whole body
        self.disbelieved = False  # whether the usage was impossibly high

    def feed(self, data: bytes) -> None:
        if len(self._head) < MAX_HEAD:
            self._head += data[: MAX_HEAD - len(self._head)]
        self._tail = (self._tail + data)[-MAX_TAIL:]
        self._events += data.count(_EVENT)
        self._size += len(data)

    def usage(self, bounds: Bounds, *, count_cached: bool = True) -> tuple[int, int] | None:
        """Return input and output tokens from the body's last usage; None if it has none.

        ``bounds``: a usage with higher counts is rejected and sets :attr:`disbelieved`.
        ``count_cached``: whether the prompt's cached tokens count.
        """
        first_usage = _usage_in(self._head, last=False)
        last_usage = _usage_in(self._tail, last=True) or first_usage
        if last_usage is None:
            return None
        # Anthropic's streams begin with the input's tokens and end with the output's.
        usage = (
            {**first_usage, **last_usage}
            if first_usage is not None and "input_tokens" in first_usage
            else last_usage
        )
        widened = Bounds(bounds.prompt, max(bounds.output, self._size))
        self.disbelieved = not is_believable(usage, widened)
        return None if self.disbelieved else _counted(usage, count_cached)

    def estimated_output(self) -> int:
        """Estimate the output's tokens: one per event of a stream, else by the bytes."""
        return self._events or self._size // BYTES_PER_OUTPUT_TOKEN


def _usage_in(body: bytes, *, last: bool) -> dict[str, Any] | None:
    """Return the first or the last usage in the body that counts any tokens."""
    text = body.decode("utf-8", "replace")
    places = [match.end() for match in _USAGE.finditer(text)]
    for place in reversed(places) if last else places:
        try:
            usage: dict[str, Any] = _DECODER.raw_decode(text, place)[0]
        except (ValueError, RecursionError):
            continue
        if any(usage.get(name) for name in COUNTS):
            return usage
    return None


def _counted(usage: dict[str, Any], count_cached: bool) -> tuple[int, int]:
    openai = "prompt_tokens" in usage
    prompt = count_of(usage.get("prompt_tokens" if openai else "input_tokens"))
    output = count_of(usage.get("completion_tokens" if openai else "output_tokens"))
    details = usage.get("prompt_tokens_details" if openai else "input_tokens_details")
    if isinstance(details, dict):
        cached = min(count_of(details.get("cached_tokens")), prompt)
        return prompt - (0 if count_cached else cached), output
    if not openai:  # Anthropic's `input_tokens` leave out tokens read from or written to the cache
        prompt += count_of(usage.get("cache_creation_input_tokens"))
        prompt += count_of(usage.get("cache_read_input_tokens")) if count_cached else 0
    if not prompt + output:
        prompt = count_of(usage.get("total_tokens"))
    return prompt, output
