"""The record of an exchange: what was wrong in words that hold no text of anybody."""

from __future__ import annotations

import orjson
import pytest

from mlx_stack_proxy.engine.outcome import Figures, Incident, Outcome, Remarks
from mlx_stack_proxy.engine.record import attempt_of, record_of
from mlx_stack_proxy.engine.steps import Deliver, Fail, Move, Retry, Start
from mlx_stack_proxy.engine.upstream_answers import failure_of_status
from mlx_stack_proxy.engine.verdicts import (
    CallFailure,
    Failure,
    InvalidToolCall,
    LoopDetected,
)
from mlx_stack_proxy.engine.wordings import error_class
from mlx_stack_proxy.errors import ProxyError, unreachable
from tests.engine.exchanges import client_request, exchange

SECRET = "tell nobody about MyDivorceError: the wombat"
CHAIN = "litellm.InternalServerError: InternalServerError: OpenAIException - "


def failed(message: str, status: int = 500, **fields: str) -> str:
    body = orjson.dumps({"error": {"message": message, **fields}})
    verdict = failure_of_status(status, (), body, our_key=True, our_choice=True, needs=frozenset())
    assert isinstance(verdict, Failure)
    return error_class(verdict.message, verdict.body)


@pytest.mark.parametrize(
    ("message", "words"),
    [
        (f"{CHAIN}CUDA out of memory. Tried to allocate 2.00 GiB", "out of memory"),
        ("[METAL] failed: Insufficient Memory (00000008:kIOGPU)", "out of memory"),
        ("Failed to load model qwen", "model not loaded"),
        (f"{CHAIN}RuntimeError: {SECRET}", "RuntimeError"),
        ("mlx.core.ShapeError: [matmul]", "ShapeError"),
        (f"{CHAIN}{SECRET}", ""),
        (SECRET, ""),
    ],
)
def test_what_upstream_names(message: str, words: str) -> None:
    assert failed(message) == words


def test_an_errors_code_is_a_name_too() -> None:
    assert failed(SECRET, type="slot_unavailable") == "slot_unavailable"
    assert failed(SECRET, type=SECRET, code="Tell Nobody") == ""
    assert failed(SECRET, code=f"a_{'b' * 58} {SECRET}") == ""


def test_it_tells_what_each_attempt_did() -> None:
    bad = InvalidToolCall(
        (
            CallFailure("edit", "missing_required", "…", 0, 0, "path"),
            CallFailure("edit", "wrong_type", "…", 0, 0, "edits.line"),
            CallFailure("my own words", "unknown_tool", "…"),
        )
    )
    one = exchange(client_request(tools=[{"function": {"name": "edit"}}], model="auto"))
    one.start = Start("fast")
    one.outcomes = [
        Outcome("fast", bad, "tool_validation_failure", figures=Figures(seconds=2.0, waited=1.5)),
        Outcome("fast", LoopDetected("repetition", 3, "…"), "loop_detected"),
        Outcome("standard", None, figures=Figures(tokens_in=5, tokens_out=7)),
    ]
    one.steps = [
        Retry("tool_validation_failure", 1),
        Move("standard", "loop_detected"),
        Deliver(),
    ]
    record = record_of(one, "ok", 100.0, 9.0)
    data = record.as_data()
    assert (data["seconds"], data["status"], data["way"]) == (9.0, 200, "escalated_right")
    assert (data["tools"], data["messages"], data["model"]) == (["edit"], 1, "auto")
    first, second, third = data["attempts"]
    assert first["wrong"] == "edit: missing_required path, wrong_type edits.line; unknown_tool"
    assert (first["waited"], first["then"], second["then"]) == (1.5, "retry", "move")
    assert second["wrong"] == "repetition, 3 times"
    assert (third["tokens_in"], third["tokens_out"], third["reason"]) == (5, 7, None)
    assert "my own words" not in str(data) and not record.plain


def test_a_plain_exchange_is_plain() -> None:
    one = exchange()
    one.outcomes, one.steps = [Outcome("fast")], [Deliver()]
    assert record_of(one, "ok", 100.0, 1.0).plain
    one.recorded.clear()
    one.outcomes = [Outcome("fast", remarks=Remarks(incidents=[Incident("prompt_cut", ())]))]
    assert not record_of(one, "ok", 100.0, 1.0).plain


def test_a_loop_that_two_attempts_have_is_one() -> None:
    broken = Incident("loop_break", ("repetition", "circuit_break"), {"pattern": "ab"})
    other = Incident("loop_break", ("repetition", "circuit_break"), {"pattern": "cd"})
    one = exchange()
    one.outcomes = [
        Outcome("fast", remarks=Remarks(incidents=[broken])),
        Outcome("fast", remarks=Remarks(incidents=[broken, other])),
    ]
    marks = [incident.detail.get("again") for incident in attempt_of(one, 1).incidents]
    assert marks == [True, None]


@pytest.mark.parametrize(
    ("error", "verdict", "called", "why"),
    [
        (
            unreachable("refused"),
            Failure("unreachable", "refused"),
            True,
            "unreachable",
        ),
        (unreachable("stop"), None, True, "stopping"),
        (
            ProxyError(502, "all_tiers_failed", "…"),
            Failure("tier_degraded", "…"),
            False,
            "tier_degraded",
        ),
        (ProxyError(502, "all_tiers_failed", "…"), Failure("timeout", "…"), True, ""),
        (ProxyError(429, "budget_exceeded", "…"), None, False, "budget_exceeded"),
    ],
)
def test_why_a_request_was_refused(
    error: ProxyError, verdict: Failure | None, called: bool, why: str
) -> None:
    one = exchange()
    reason = verdict.reason if verdict is not None else None
    one.outcomes = [Outcome("fast", verdict, reason, called=called)]
    record = record_of(one, error.type, 100.0, 1.0, Fail(error))
    assert (record.refused_for, record.status) == (why, error.status)


def test_a_record_is_small_whatever_was_asked() -> None:
    names = [f"{number:03d}{'x' * 300}" for number in range(128)]
    one = exchange(client_request(tools=[{"function": {"name": name}} for name in names]))
    failures = tuple(
        CallFailure(name, "wrong_type", "…", 0, at, "f" * 200) for at, name in enumerate(names)
    )
    repairs = [Incident("tool_call_repaired", (f"rule_{number}",)) for number in range(200)]
    remarks = Remarks(incidents=repairs, calls=names)
    bad = Outcome("fast", InvalidToolCall(failures), "tool_validation_failure", remarks=remarks)
    one.outcomes, one.steps = [bad] * 100, [Retry("tool_validation_failure", 1)] * 100
    data = record_of(one, "tool_validation_failed", 100.0, 1.0).as_data()
    assert data["attempts_made"] == 100 and len(data["attempts"]) == 24
    assert len(orjson.dumps(data)) < 64 * 1024
