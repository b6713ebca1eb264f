"""Errors in the Responses API, each with a status after which its clients don't retry.

Codex sends a request thirty times for a status of 500 or above, six times for most others, and once
for 400 and for 429 without ``Retry-After``. So an error that would recur has 400, and one that may
pass in a while has 429. Only an unreachable upstream has 503, because a retry may help. The body is
OpenAI's error object, as in chat completions (docs/errors.md).
"""

from __future__ import annotations

from typing import Any, Final

from ...errors import IN_DIALECTS, OVERFLOW, ProxyError
from ..dialect import ErrorReply

_UPSTREAM_GONE: Final = "upstream_unavailable"
_BROKEN: Final = ("all_tiers_failed", 502)
_BUDGET: Final = "budget_exceeded"


def error_reply(error: ProxyError, request_id: str) -> ErrorReply:
    """Return the error response for a request whose reply has not begun."""
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
        # For a 429, Codex (0.169) shows only this header, after "You've hit your usage limit."
        headers.append((b"x-codex-promo-message", error.message.encode("ascii", "replace")))
        body["error"] |= {"type": "usage_limit_reached", "code": _BUDGET}
    return ErrorReply(status, headers, body)


def status_of(error: ProxyError) -> int:
    if error.code == OVERFLOW:
        return 400
    if error.type in IN_DIALECTS:
        return IN_DIALECTS[error.type][1]
    return 400 if error.status == 422 or error.status >= 500 else error.status


def failure_of(error: ProxyError, *, text_committed: bool = False) -> dict[str, Any]:
    """Return the error object of a response that fails after its stream has begun.

    Codex retries after every code except ``invalid_prompt`` and that of an overflow. If a server
    broke off after text went out (``text_committed``), only the client can retry.
    """
    broke_off = text_committed and (error.type, error.status) == _BROKEN
    if error.code == OVERFLOW:
        code = OVERFLOW
    else:
        passing = broke_off or error.type == _UPSTREAM_GONE
        code = "server_error" if passing else "invalid_prompt"
    return {**error.body()["error"], "code": code}
