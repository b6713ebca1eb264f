"""What became of a request, in a paragraph that a person reads."""

from __future__ import annotations

import time
from typing import Any

import pytest

from mlx_stack_proxy.engine.record import WAYS
from mlx_stack_proxy.engine.verdicts import FailureReason
from mlx_stack_proxy.telemetry.why import _DID, _GOT, why

NOW = 1_780_000_000.0
WHO = {"time": NOW, "request_id": "req_1", "session": "ab" * 16, "agent": "codex", "tier": "fast"}


def attempt(tier: str, reason: str | None, **more: Any) -> dict[str, Any]:
    return {"tier": tier, "reason": reason, "status": 200, "seconds": 2.0, **more}


def told(*attempts: dict[str, Any], **record: Any) -> str:
    asked = {"model": "auto", "messages": 12, "tools": ["edit", "read_file"], "tools_offered": 2}
    return why({**WHO, "detail": {**asked, "attempts": list(attempts), "seconds": 60.0, **record}})


def test_a_repair_need_not_end_in_a_call() -> None:
    said = told(attempt("fast", None, repairs=["call_without_tools"]), outcome="ok", way="repaired")
    assert "The client got the repaired reply, after 1 min. Nothing needs to be done." in said


def test_a_call_that_could_not_be_delivered() -> None:
    bad = attempt("fast", "tool_validation_failure", wrong="edit: missing_required path")
    again = {**bad, "tier": "standard", "waited": 3.0}
    said = told(
        {**bad, "then": "retry"},
        {**bad, "then": "move"},
        again,
        outcome="tool_validation_failed",
        status=422,
    )
    begun = time.strftime("%H:%M", time.localtime(NOW - 60))
    assert said == (
        f"At {begun} codex asked for auto with 12 messages and 2 tools (edit, read_file). "
        "Tier fast wrote a tool call that can't be delivered (edit: missing_required path, "
        "2 attempts, 4 s). "
        "Then standard wrote a tool call that can't be delivered "
        "(edit: missing_required path, 3 s in the queue, 2 s). "
        "The client got status 422 (tool_validation_failed), after 1 min. "
        "Set `observability.capture_failures: true` to keep what the model writes, or start with a "
        "stronger tier."
    )


@pytest.mark.parametrize(
    ("record", "words"),
    [
        (
            {"outcome": "budget_exceeded", "refused_for": "budget_exceeded", "budget": "session"},
            "(budget_exceeded: a spent token budget of the session), after 1 min. Reset the "
            "session: `mlx-stack-proxy sessions abababababab --delete`.",
        ),
        (
            {"outcome": "upstream_unavailable", "refused_for": "unreachable", "status": 503},
            "status 503 (upstream_unavailable: LiteLLM out of reach), after 1 min. "
            "Start LiteLLM, then run `mlx-stack-proxy check`.",
        ),
        ({"outcome": "client_left"}, "The client disconnected before its reply was complete"),
        ({"outcome": "ok", "way": "retried_right"}, "Nothing needs to be done."),
        ({"outcome": "ok", "way": "went_out_broken"}, "probably broken"),
        ({"outcome": "client_error", "status": 400}, "Fix the client's request"),
        (
            {"outcome": "ok", "way": "right_at_once", "passed_over": "fast",
             "escalation_reason": "memory_pressure"},
            "; fast was not called because memory was low.",
        ),
    ],
)  # fmt: skip
def test_what_the_client_got_and_what_to_do(record: dict[str, Any], words: str) -> None:
    assert words in told(**record)


def test_a_server_without_memory() -> None:
    bad = attempt("fast", "server_error", wrong="out of memory") | {"status": 500}
    said = told(bad, outcome="all_tiers_failed", status=502)
    assert "fast returned a server error (out of memory, status 500, 2 s)." in said
    assert said.endswith("a smaller model, or a smaller window.")


@pytest.mark.parametrize("status", [401, 403])
def test_a_server_that_refuses_our_key(status: int) -> None:
    bad = attempt("fast", "server_error", wrong="auth_error") | {"status": status}
    said = told(bad, outcome="all_tiers_failed", status=502)
    assert said.endswith("Correct the key that the proxy sends, then run `mlx-stack-proxy check`.")


def test_equal_attempts_are_one_sentence() -> None:
    said = told(*[attempt("fast", "timeout", then="retry")] * 20, outcome="all_tiers_failed")
    assert "Tier fast was silent for too long (20 attempts, 40 s). The client" in said


def test_many_attempts_are_not_all_told() -> None:
    two = [
        attempt("fast", "timeout", then="retry"),
        attempt("fast", "empty_response", then="retry"),
    ]
    said = told(*two * 10, outcome="all_tiers_failed")
    assert "14 more attempts also failed. On a retry, it wrote nothing" in said
    assert said.count("silent") == 3


def test_what_is_on_is_not_advised() -> None:
    bad = attempt("fast", "tool_validation_failure", wrong="edit: missing_required path")
    record = {"attempts": [bad], "outcome": "tool_validation_failed", "status": 422}
    said = why({**WHO, "detail": record}, capturing=True)
    assert "capture_failures" not in said and said.endswith(
        "open this request on the page at /mlx-stack/, or start with a stronger tier."
    )


def test_every_way_and_every_reason_has_its_words() -> None:
    assert set(_GOT) == set(WAYS)
    assert set(FailureReason.__args__) <= set(_DID)  # type: ignore[attr-defined]
