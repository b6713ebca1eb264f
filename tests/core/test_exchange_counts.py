"""What a finished exchange adds to the hour's counters."""

from __future__ import annotations

from typing import Any

import pytest

from mlx_stack_proxy.engine.exchange import AttemptRecord, Exchange, Incident, Route
from mlx_stack_proxy.telemetry.exchange_counts import WAYS, counts_of, difference, way_of
from tests.core.exchanges import exchange as made

OK = AttemptRecord("fast", None, 200, 2.0, silent=0.5, tokens_in=10, tokens_out=4)
BAD = AttemptRecord("fast", "tool_validation_failure", 200, 1.0, calls=("edit",))
GONE = AttemptRecord("fast", "server_error", None, 0.0, refused=True)
DOUBT = AttemptRecord("fast", "loop_detected", 200, 1.0, doubt=True)
HIGHER = AttemptRecord("standard", None, 200, 1.0)


def exchange(*attempts: AttemptRecord, **fields: Any) -> Exchange:
    found = made()
    found.attempts.extend(attempts)
    found.tier = attempts[-1].tier if attempts else "fast"
    for name, value in fields.items():
        setattr(found, name, value)
    return found


@pytest.mark.parametrize(
    ("attempts", "repairs", "way"),
    [
        ([OK], "", "right_at_once"),
        ([OK], "comma", "repaired"),
        ([OK], "rescued,comma", "found_in_text"),
        ([DOUBT, OK], "", "confirmed"),
        ([BAD, OK], "comma", "retried_right"),
        ([BAD, HIGHER], "", "escalated_right"),
        ([DOUBT, GONE, HIGHER], "", "escalated_right"),
    ],
)
def test_each_reply_came_in_one_way(attempts: list[AttemptRecord], repairs: str, way: str) -> None:
    one = exchange(*attempts, reply_notes={"Repairs": repairs} if repairs else {})
    assert way_of(one) == way
    rows = counts_of(one, "ok")
    assert sum(row.get(way, 0) for row in rows.values() for way in WAYS) == 1
    assert rows[attempts[-1].tier][way] == 1


def test_all_that_happened_stands_where_it_happened() -> None:
    told = Incident("tool_call_invalid", ("schema",), {"tool": "edit"})
    cut = Incident("truncated", ("max_output_tokens",))
    one = exchange(
        BAD,
        GONE,
        HIGHER,
        settled=[("fast", told), ("standard", cut)],
        queued=[("fast", 1.5, True), ("fast", 60.0, False)],
    )
    assert counts_of(one, "ok") == {
        "fast": {
            "attempts": 2,
            "model_seconds": 1.0,
            "failed": 2,
            "failed:tool_validation_failure": 1,
            "failed:unreachable": 1,
            "calls": 1,
            "calls:edit": 1,
            "retries": 1,
            "left": 1,
            "left:server_error": 1,
            "queued": 2,
            "queue_seconds": 61.5,
            "queue_timeouts": 1,
            "invalid_calls": 1,
            "invalid_calls:edit": 1,
        },
        "standard": {
            "attempts": 1,
            "model_seconds": 1.0,
            "replies_cut": 1,
            "requests": 1,
            "turns": 1,
            "escalated_right": 1,
        },
    }


@pytest.mark.parametrize(
    ("outcome", "counter"),
    [
        ("client_left", "client_left"),
        ("client_error", "client_errors"),
        ("all_tiers_failed", "errors:all_tiers_failed"),
    ],
)
def test_what_is_no_reply_is_no_turn(outcome: str, counter: str) -> None:
    row = counts_of(exchange(OK), outcome)["fast"]
    assert (row["requests"], row[counter]) == (1, 1)
    assert "turns" not in row and not set(WAYS) & set(row)


def test_what_passes_through_is_one_tier() -> None:
    one = exchange(OK, route=Route((), "gpt"), tier="gpt")
    assert list(counts_of(one, "ok")) == ["other"]


def test_what_was_told_too_early_is_put_right() -> None:
    one = exchange(OK)
    before, now = counts_of(one, "ok"), counts_of(one, "client_left")
    assert difference(now, before) == {"fast": {"turns": -1, "right_at_once": -1, "client_left": 1}}
    assert difference(before, {}) == before
    assert difference(before, before) == {}
