"""Errors as the clients of this protocol take them: each that is final costs one try.

Codex asks thirty times after a status of 500 and above, and six times after most others; once after
400, and after 429 without ``Retry-After``. So what would be the same again is 400, what a while may
change is 429, and 503 alone says that upstream can't be reached, which trying again may mend.
The body is OpenAI's error object, as in chat completions (docs/errors.md).
"""

from __future__ import annotations

from typing import Any, Final

from ...errors import OVERFLOW, ProxyError
from ..dialect import ErrorReply

_UPSTREAM_GONE: Final = "upstream_unavailable"
_BROKEN: Final = ("all_tiers_failed", 502)
_BUDGET: Final = "budget_exceeded"
_LATER: Final = frozenset({_BUDGET, "tier_busy", "memory_pressure"})


def error_reply(error: ProxyError, request_id: str) -> ErrorReply:
    """The response to a request of which nothing has been sent."""
    status = status_of(error)
    passing = status == 503
    headers = [
        (name, value)
        for name, value in error.headers()
        if name != b"x-should-retry" and (passing or name != b"retry-after")
    ]
    headers.append((b"x-should-retry", b"true" if passing else b"false"))
    body = error.body()
    if error.type == _BUDGET:
        # Of a 429 Codex (0.169) shows no words but these, behind "You've hit your usage limit."
        headers.append((b"x-codex-promo-message", error.message.encode("ascii", "replace")))
        body["error"] |= {"type": "usage_limit_reached", "code": _BUDGET}
    return ErrorReply(status, headers, body)


def status_of(error: ProxyError) -> int:
    if error.code == OVERFLOW:
        return 400
    if error.type in _LATER:
        return 429
    if error.type == _UPSTREAM_GONE:
        return 503
    return 400 if error.status == 422 or error.status >= 500 else error.status


def failure_of(error: ProxyError, *, text_is_out: bool = False) -> dict[str, Any]:
    """The error of a response that fails after its stream has begun.

    Codex tries again after each code but ``invalid_prompt`` and that of an overflow. A server that
    broke off in the midst of a text has to be asked again, and only the client can do that.
    """
    broke_off = text_is_out and (error.type, error.status) == _BROKEN
    if error.code == OVERFLOW:
        code = OVERFLOW
    else:
        passing = broke_off or error.type == _UPSTREAM_GONE
        code = "server_error" if passing else "invalid_prompt"
    return {**error.body()["error"], "code": code}
