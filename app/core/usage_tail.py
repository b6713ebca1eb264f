"""The usage at the end of a reply that passes through unread."""

from __future__ import annotations

import json
from typing import Any

MAX_TAIL = 64 * 1024  # bytes; servers write the usage last
_DECODER = json.JSONDecoder()
_PROMPT = ("prompt_tokens", "input_tokens")
_OUTPUT = ("completion_tokens", "output_tokens")


class UsageTail:
    """Keeps the end of a body that comes in pieces."""

    __slots__ = ("_tail",)

    def __init__(self) -> None:
        self._tail = b""

    def feed(self, data: bytes) -> None:
        self._tail = (self._tail + data)[-MAX_TAIL:]

    def tokens(self) -> int:
        """Input and output together, as the last usage in the body has them; 0 if it has none."""
        text = self._tail.decode("utf-8", "replace")
        at = len(text)
        while (at := text.rfind('"usage"', 0, at)) >= 0:
            found = _object_after(text, at + len('"usage"'))
            if found is not None and (tokens := _total(found)):
                return tokens
        return 0


def _object_after(text: str, at: int) -> dict[str, Any] | None:
    rest = text[at:].lstrip()
    if not rest.startswith(":"):
        return None
    try:
        found, _ = _DECODER.raw_decode(rest[1:].lstrip())
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def _total(usage: dict[str, Any]) -> int:
    counts = [next((usage[k] for k in keys if k in usage), 0) for keys in (_PROMPT, _OUTPUT)]
    known = [count for count in counts if isinstance(count, int) and count > 0]
    whole = usage.get("total_tokens")
    return sum(known) or (whole if isinstance(whole, int) and whole > 0 else 0)
