"""Which status and code an error has for clients of Responses, so that it costs them one try."""

from __future__ import annotations

import pytest

from mlx_stack_proxy.errors import ProxyError, invalid
from mlx_stack_proxy.wire.responses import RESPONSES
from mlx_stack_proxy.wire.responses.errors import failure_of

TABLE = [  # type, status as a chat completion's, status, code in a stream
    ("loop_detected", 422, 400, "invalid_prompt"),
    ("tool_validation_failed", 422, 400, "invalid_prompt"),
    ("all_tiers_failed", 502, 400, "invalid_prompt"),
    ("all_tiers_failed", 504, 400, "invalid_prompt"),
    ("internal_error", 500, 400, "invalid_prompt"),
    ("budget_exceeded", 429, 429, "invalid_prompt"),
    ("tier_busy", 503, 429, "invalid_prompt"),
    ("memory_pressure", 503, 429, "invalid_prompt"),
    ("upstream_unavailable", 503, 503, "server_error"),
    ("invalid_request_error", 400, 400, "invalid_prompt"),
    ("invalid_request_error", 401, 401, "invalid_prompt"),
    ("invalid_request_error", 413, 413, "invalid_prompt"),
    ("invalid_request_error", 422, 400, "invalid_prompt"),
    ("invalid_request_error", 501, 400, "invalid_prompt"),
]


@pytest.mark.parametrize(("type_", "given", "status", "code"), TABLE)
def test_each_final_error_costs_one_try(type_: str, given: int, status: int, code: str) -> None:
    error = ProxyError(given, type_, "a sentence", extra={"used": 7}, retry_after=9)
    reply = RESPONSES.error(error, "req_1")
    headers = dict(reply.headers)
    assert [name for name, _ in reply.headers].count(b"x-should-retry") == 1
    passing = status == 503
    assert reply.status == status
    assert headers[b"x-should-retry"] == (b"true" if passing else b"false")
    assert (b"retry-after" in headers) == passing
    assert headers[b"content-type"] == b"application/json"
    of_codex = type_ == "budget_exceeded"
    assert reply.body["error"]["type"] == ("usage_limit_reached" if of_codex else type_)
    assert reply.body["error"]["used"] == 7
    failed = failure_of(error)
    assert (failed["code"], failed["message"]) == (code, "a sentence")
    assert (failed["type"], failed["used"]) == (type_, 7), "as in the response's own error"


@pytest.mark.parametrize(
    ("type_", "status", "code"),
    [
        ("all_tiers_failed", 502, "server_error"),
        ("all_tiers_failed", 504, "invalid_prompt"),  # it would cost six times the silence
        ("tool_validation_failed", 422, "invalid_prompt"),
        ("loop_detected", 422, "invalid_prompt"),
    ],
)
def test_a_server_that_broke_off_within_a_text_is_asked_again(
    type_: str, status: int, code: str
) -> None:
    """The proxy can't do it once text is out, and Codex (0.169) would end its task."""
    error = ProxyError(status, type_, "a sentence")
    assert failure_of(error, text_committed=True)["code"] == code


def test_codex_shows_the_sentence_of_a_spent_budget() -> None:
    error = ProxyError(429, "budget_exceeded", "30 of 30 are used …", retry_after=9)
    reply = RESPONSES.error(error, "req_1")
    assert dict(reply.headers)[b"x-codex-promo-message"] == b"30 of 30 are used ?"
    said = {"type": "usage_limit_reached", "code": "budget_exceeded"}
    assert said.items() <= reply.body["error"].items()


@pytest.mark.parametrize("status", [400, 413, 500])
def test_a_prompt_that_fits_nowhere(status: int) -> None:
    error = invalid("too long", status=status)
    error.code = "context_length_exceeded"
    assert RESPONSES.error(error, "req_1").status == 400
    assert failure_of(error)["code"] == "context_length_exceeded"
