"""The errors that a client can get from the proxy, in OpenAI's error shape (docs/errors.md)."""

from __future__ import annotations

from typing import Any, Final

import orjson

INVALID_REQUEST = "invalid_request_error"
OVERFLOW = "context_length_exceeded"  # the `code` if the prompt fits no model's window
# The status of our own errors in the other dialects, by type: Messages, Responses. A client of
# theirs repeats a request for the status that chat completions have, so an error that would come
# again has one that costs a single try (measured: `wire/messages/errors.py` and its like).
IN_DIALECTS: Final = {
    "loop_detected": (424, 400),
    "tool_validation_failed": (424, 400),
    "all_tiers_failed": (424, 400),
    "tier_busy": (529, 429),
    "memory_pressure": (529, 429),
    "budget_exceeded": (429, 429),
    "upstream_unavailable": (503, 503),
}


class ProxyError(Exception):
    """An error response for the client: raised anywhere, written by the server.

    ``status`` is the HTTP status; ``type_``, ``message``, ``param`` and ``code`` are the fields of
    OpenAI's ``error`` object, to which ``extra`` adds keys of ours. ``retry_after`` (seconds) and
    ``allow`` (methods) become response headers.
    """

    def __init__(
        self,
        status: int,
        type_: str,
        message: str,
        *,
        param: str | None = None,
        code: str | None = None,
        extra: dict[str, Any] | None = None,
        retry_after: float | None = None,
        allow: str | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.type = type_
        self.message = message
        self.param = param
        self.code = code
        self.extra = extra or {}
        self.retry_after = retry_after
        self.allow = allow

    def with_extra(self, fields: dict[str, Any]) -> ProxyError:
        """Return the same error with these fields added to its ``error`` object."""
        return ProxyError(
            self.status,
            self.type,
            self.message,
            param=self.param,
            code=self.code,
            extra={**self.extra, **fields},
            retry_after=self.retry_after,
            allow=self.allow,
        )

    def body(self) -> dict[str, Any]:
        """Return the response body; a stream that has begun sends the same as its last event."""
        error = {"message": self.message, "type": self.type, "param": self.param, "code": self.code}
        return {"error": {**error, **self.extra}}

    def encoded(self) -> bytes:
        return orjson.dumps(self.body())

    def headers(self) -> list[tuple[bytes, bytes]]:
        """Return the response headers. ``x-should-retry`` is for OpenAI's and Anthropic's SDKs."""
        headers = [
            (b"content-type", b"application/json"),
            (b"x-should-retry", b"true" if self.status == 503 else b"false"),
        ]
        if self.retry_after is not None:
            headers.append((b"retry-after", str(max(1, round(self.retry_after))).encode()))
        if self.allow is not None:
            headers.append((b"allow", self.allow.encode()))
        if self.status == 426:  # RFC 9110, 15.5.22: the response must name the protocol to use
            headers += [(b"upgrade", b"HTTP/1.1"), (b"connection", b"upgrade")]
        return headers


def invalid(message: str, param: str | None = None, *, status: int = 400) -> ProxyError:
    """Return the error for a client's mistake. ``param``: the field of the body that is wrong."""
    return ProxyError(status, INVALID_REQUEST, message, param=param)


def unreachable(reason: object, extra: dict[str, Any] | None = None) -> ProxyError:
    """Return the 503 for a LiteLLM that can't be reached; ``extra`` joins the error object."""
    message = f"LiteLLM can't be reached: {reason}"
    return ProxyError(503, "upstream_unavailable", message, extra=extra, retry_after=5)


def shutting_down() -> ProxyError:
    return ProxyError(
        503, "upstream_unavailable", "the proxy is shutting down; try again", retry_after=5
    )
