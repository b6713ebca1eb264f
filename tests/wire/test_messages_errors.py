"""Which status and type an error has for clients of Messages, so that it costs them one try.

Measured with Claude Code: 400 and 422 cost six tries, whatever the headers say; 401, 409, 429 and
5xx one where ``x-should-retry`` is ``false``, else seven, at the pace of ``Retry-After``; 424 one.
"""

from __future__ import annotations

import pytest

from mlx_stack_proxy.errors import ProxyError, invalid
from mlx_stack_proxy.wire.messages import MESSAGES

TABLE = [  # type, status as a chat completion's, status and type, whether to try again
    ("loop_detected", 422, 424, "api_error", False),
    ("tool_validation_failed", 422, 424, "api_error", False),
    ("all_tiers_failed", 502, 424, "api_error", False),
    ("all_tiers_failed", 504, 424, "api_error", False),
    ("internal_error", 500, 500, "api_error", False),
    ("budget_exceeded", 429, 429, "rate_limit_error", False),
    ("tier_busy", 503, 529, "overloaded_error", True),
    ("memory_pressure", 503, 529, "overloaded_error", True),
    ("upstream_unavailable", 503, 503, "api_error", True),
    ("invalid_request_error", 400, 400, "invalid_request_error", False),
    ("invalid_request_error", 401, 401, "authentication_error", False),
    ("invalid_request_error", 402, 402, "billing_error", False),
    ("invalid_request_error", 403, 403, "permission_error", False),
    ("invalid_request_error", 404, 404, "not_found_error", False),
    ("invalid_request_error", 413, 413, "request_too_large", False),
    ("invalid_request_error", 415, 415, "invalid_request_error", False),
    ("invalid_request_error", 422, 400, "invalid_request_error", False),
    ("invalid_request_error", 501, 501, "api_error", False),
]


@pytest.mark.parametrize(("type_", "given", "status", "named", "again"), TABLE)
def test_each_final_error_costs_one_try(
    type_: str, given: int, status: int, named: str, again: bool
) -> None:
    error = ProxyError(given, type_, "a sentence", extra={"used": 7}, retry_after=9)
    reply = MESSAGES.error(error, "req_1")
    headers = dict(reply.headers)
    assert reply.status == status
    assert headers[b"x-should-retry"] == (b"true" if again else b"false")
    assert headers[b"retry-after"] == b"9"
    assert headers[b"content-type"] == b"application/json"
    assert [name for name, _ in reply.headers].count(b"x-should-retry") == 1
    body = reply.body
    assert (body["type"], body["request_id"]) == ("error", "req_1")
    assert (body["error"]["type"], body["error"]["message"]) == (named, "a sentence")
    assert body["error"]["details"]["used"] == 7
    if type_ != "invalid_request_error":
        assert body["error"]["details"]["error_code"] == type_


@pytest.mark.parametrize("status", [400, 413, 422])
@pytest.mark.parametrize(
    ("said", "words"),
    [
        ({"prompt_tokens": 9_000, "context_window": 8_000}, "9000 tokens > 8000 maximum"),
        ({"prompt_tokens": 10, "context_window": 8_000}, "8001 tokens > 8000 maximum"),
        ({"prompt_tokens": 10, "context_window": None}, "too long"),
    ],
)
def test_a_prompt_that_fits_nowhere_makes_the_client_compact(
    status: int, said: dict[str, int], words: str
) -> None:
    error = invalid("too long", status=status)
    error.code, error.extra = "context_length_exceeded", said
    reply = MESSAGES.error(error, "req_1")
    assert reply.body["error"]["message"] == f"prompt is too long: {words}"
    assert (reply.status, reply.body["error"]["type"]) == (400, "invalid_request_error")
