"""Errors in Anthropic's shape, each with a status after which its clients don't retry.

Measured with Claude Code (docs/errors.md): it sends a request six times in all for 400 or 422, up
to seven times for other errors, and once for 424. It obeys ``x-should-retry`` for 429 and 5xx.
"""

from __future__ import annotations

from typing import Final

from ...errors import IN_DIALECTS, INVALID_REQUEST, OVERFLOW, ProxyError
from ..dialect import ErrorReply
from ..transcript import Json

_DEPENDENCY_FAILED: Final = 424
_OVERLOADED: Final = 529
_TYPES: Final = {
    400: "invalid_request_error",
    401: "authentication_error",
    402: "billing_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    504: "timeout_error",
    529: "overloaded_error",
}


def error_reply(error: ProxyError, request_id: str) -> ErrorReply:
    """Write an error as Anthropic's clients expect it."""
    status = IN_DIALECTS[error.type][0] if error.type in IN_DIALECTS else error.status
    if status == 422 or error.code == OVERFLOW:  # upstream refused the client's request
        status = 400
    headers = error.headers()
    if status == _OVERLOADED:
        headers = [
            (name, b"true" if name == b"x-should-retry" else value) for name, value in headers
        ]
    code = error.code or (error.type if error.type != INVALID_REQUEST else None)
    details = {"error_code": code, "param": error.param}
    details = {**{key: value for key, value in details.items() if value}, **error.extra}
    client = 400 <= status < 500 and status != _DEPENDENCY_FAILED
    kind = _TYPES.get(status) or ("invalid_request_error" if client else "api_error")
    fields: Json = {"type": kind, "message": _message(error)}
    if details:
        fields["details"] = details
    body = {"type": "error", "error": fields, "request_id": request_id}
    return ErrorReply(status, headers, body)


def _message(error: ProxyError) -> str:
    """Return an error's message; the words "prompt is too long" make Claude Code compact."""
    if error.code != OVERFLOW:
        return error.message
    tokens, window = error.extra.get("prompt_tokens"), error.extra.get("context_window")
    if tokens and window:
        return f"prompt is too long: {max(tokens, window + 1)} tokens > {window} maximum"
    return f"prompt is too long: {error.message}"
