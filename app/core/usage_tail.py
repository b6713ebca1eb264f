"""The usage in a reply that passes through unread."""

from __future__ import annotations

import json
import zlib
from typing import Any

MAX_HEAD = 16 * 1024  # bytes; Anthropic's streams say first what the prompt was,
MAX_TAIL = 64 * 1024  # and all write the rest last
READABLE = frozenset({"", "identity", "gzip", "deflate"})  # content encodings
MOST_UNPACKED = 64 * 1024 * 1024  # bytes of a compressed body that are looked at
_STEP = 1024 * 1024
_DECODER = json.JSONDecoder()
_NAME = '"usage"'


class UsageTail:
    """Keeps both ends of a body that comes in pieces. ``encoding``: its ``Content-Encoding``."""

    __slots__ = ("_head", "_room", "_tail", "_unpack")

    def __init__(self, encoding: str = "") -> None:
        self._head = b""
        self._tail = b""
        packed = encoding in READABLE and encoding not in ("", "identity")
        self._unpack = zlib.decompressobj(wbits=47) if packed else None  # finds out which
        self._room = MOST_UNPACKED

    def feed(self, data: bytes) -> None:
        if self._unpack is None:
            self._keep(data)
            return
        try:
            while data and self._room > 0:
                piece = self._unpack.decompress(data, min(_STEP, self._room))
                self._room -= len(piece)
                data = self._unpack.unconsumed_tail
                self._keep(piece)
        except zlib.error:  # not what it said it is
            self._room = 0

    def _keep(self, data: bytes) -> None:
        if len(self._head) < MAX_HEAD:
            self._head += data[: MAX_HEAD - len(self._head)]
        self._tail = (self._tail + data)[-MAX_TAIL:]

    def tokens(self, *, count_cached: bool = True) -> int:
        """Input and output together, as the last usage in the body has them; 0 if it has none.

        ``count_cached``: also the prompt's tokens that came from a cache.
        """
        last = _usage_in(self._tail, last=True)
        if last is None:
            return 0
        # Anthropic's streams say at first what the prompt was, and at last what was written.
        first = _usage_in(self._head, last=False)
        usage = {**first, **last} if first is not None and "input_tokens" in first else last
        return _total(usage, count_cached)


def _usage_in(body: bytes, *, last: bool) -> dict[str, Any] | None:
    """The first or last usage that counts any tokens."""
    text = body.decode("utf-8", "replace")
    at = len(text) if last else -1
    while (at := text.rfind(_NAME, 0, at) if last else text.find(_NAME, at + 1)) >= 0:
        found = _object_after(text, at + len(_NAME))
        if found is not None and _total(found, count_cached=True):
            return found
    return None


def _object_after(text: str, at: int) -> dict[str, Any] | None:
    rest = text[at:].lstrip()
    if not rest.startswith(":"):
        return None
    try:
        found, _ = _DECODER.raw_decode(rest[1:].lstrip())
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def _total(usage: dict[str, Any], count_cached: bool) -> int:
    openai = "prompt_tokens" in usage
    prompt = _count(usage, "prompt_tokens" if openai else "input_tokens")
    output = _count(usage, "completion_tokens" if openai else "output_tokens")
    details = usage.get("prompt_tokens_details" if openai else "input_tokens_details")
    if isinstance(details, dict):
        cached = min(_count(details, "cached_tokens"), prompt)
        return prompt + output - (0 if count_cached else cached)
    if not openai:  # Anthropic's count of the input leaves out what the cache had or got
        prompt += _count(usage, "cache_creation_input_tokens")
        prompt += _count(usage, "cache_read_input_tokens") if count_cached else 0
    return prompt + output or _count(usage, "total_tokens")


def _count(usage: dict[str, Any], name: str) -> int:
    count = usage.get(name)
    if isinstance(count, bool) or not isinstance(count, int):
        return 0
    return max(0, count)
