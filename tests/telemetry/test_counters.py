"""What a finished exchange adds to the hour's counters."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
from msgspec.structs import replace

from mlx_stack_proxy.engine.exchange import Exchange
from mlx_stack_proxy.engine.outcome import Figures, Incident, Outcome, Remarks
from mlx_stack_proxy.engine.record import WAYS, record_of
from mlx_stack_proxy.engine.request import Route
from mlx_stack_proxy.engine.steps import Deliver, Move, Retry
from mlx_stack_proxy.engine.verdicts import (
    CallFailure,
    Failure,
    InvalidToolCall,
    LoopDetected,
    Verdict,
    empty,
)
from mlx_stack_proxy.state.hourly import Counts
from mlx_stack_proxy.telemetry import counters
from mlx_stack_proxy.wire.reply import ChoiceReply, Reply
from tests.engine.exchanges import client_request
from tests.engine.exchanges import exchange as made

LOOP = LoopDetected("repetition", 3, "round", doubt=True)
REFUSED = Failure("unreachable", "no")
OK = Outcome("fast", figures=Figures(seconds=2.0, silent=0.5, tokens_in=10, tokens_out=4))
BAD = Outcome("fast", reason="tool_validation_failure", figures=Figures(seconds=1.0))
GONE = Outcome("fast", REFUSED, "server_error", figures=Figures(status=None))
DOUBT = Outcome("fast", LOOP, "loop_detected", figures=Figures(seconds=1.0))
HIGHER = Outcome("standard", figures=Figures(seconds=1.0))


FOUND = CallFailure("edit", "unread_call", "a call stands in the text")
BAD_CALL = replace(BAD, verdict=InvalidToolCall((replace(FOUND, position=0),)))
SILENT = Outcome("fast", empty("ended"), "empty_response")
STILL_TEXT = replace(OK, remarks=Remarks(call_as_text=True))
DOUBTED = InvalidToolCall((FOUND,), doubt=True)


def text(said: str, verdict: Verdict | None = DOUBTED) -> Outcome:
    choice = ChoiceReply()
    choice.text = said
    reason = "tool_validation_failure" if verdict else None
    return Outcome("fast", verdict, reason, reply=Reply({0: choice}))


NOW = 1_780_000_000.0  # 26 minutes and 40 seconds after a full hour


def counts_of(one: Exchange, outcome: str) -> dict[str, Counts]:
    return counters.counts_of(record_of(one, outcome, NOW, 9.0))


def exchange(*attempts: Outcome, **fields: Any) -> Exchange:
    found = made(client_request(tools=[{"function": {"name": "edit"}}]), **fields)
    for before, after in pairwise([*attempts, None]):
        found.outcomes.append(before)
        if after is None:
            found.steps.append(Deliver())
        elif before.tier == after.tier:
            found.steps.append(Retry("", 1))
        else:
            found.steps.append(Move(after.tier, before.reason or ""))
    return found


def with_repairs(attempt: Outcome, repairs: str) -> Outcome:
    return replace(attempt, remarks=Remarks(reply_notes={"Repairs": repairs}))


@pytest.mark.parametrize(
    ("attempts", "repairs", "way"),
    [
        ([OK], "", "right_at_once"),
        ([OK], "comma", "repaired"),
        ([OK], "rescued,comma", "found_in_text"),
        ([DOUBT], "", "right_at_once"),
        ([BAD], "", "right_at_once"),
        ([DOUBT, OK], "", "confirmed"),
        ([BAD, OK], "comma", "retried_right"),
        ([BAD, HIGHER], "", "escalated_right"),
        ([DOUBT, GONE, HIGHER], "", "escalated_right"),
        ([text("<x>"), text("<x>", None)], "", "went_out_broken"),  # the same text again
        ([text("<x>"), text("An answer.", None)], "", "confirmed"),
        ([text("<x>"), STILL_TEXT], "", "went_out_broken"),
        ([text("<x>")], "", "went_out_broken"),  # nobody could be asked
        ([BAD_CALL, BAD_CALL], "", "went_out_broken"),  # under `return_last`
        ([SILENT, replace(SILENT, tier="standard")], "", "went_out_broken"),
    ],
)
def test_each_reply_came_in_one_way(attempts: list[Outcome], repairs: str, way: str) -> None:
    if repairs:
        attempts = [*attempts[:-1], with_repairs(attempts[-1], repairs)]
    one = exchange(*attempts)
    assert record_of(one, "ok", NOW, 9.0).way == way
    rows = counts_of(one, "ok")
    assert sum(row.get(way, 0) for row in rows.values() for way in WAYS) == 1
    assert rows[attempts[-1].tier][way] == 1


def test_calls_that_stayed_text_are_counted() -> None:
    rows = counts_of(exchange(text("<x>"), text("<x>", None)), "ok")
    assert rows["fast"]["calls_as_text"] == 1
    assert "calls_as_text" not in counts_of(exchange(SILENT), "ok")["fast"]


def test_repairs_are_counted_by_their_rule() -> None:
    incident = Incident("tool_call_repaired", ("doubled_braces",))
    row = counts_of(exchange(replace(OK, remarks=Remarks(incidents=[incident]))), "ok")["fast"]
    assert (row["repairs"], row["repairs:doubled_braces"]) == (1, 1)


def test_all_that_happened_stands_where_it_happened() -> None:
    told = Incident("tool_call_invalid", ("schema",), {"tool": "edit"})
    unknown = Incident("tool_call_invalid", ("unknown_tool",), {"tool": "a model's own words"})
    cut = Incident("truncated", ("max_output_tokens",))
    one = exchange(
        replace(
            BAD,
            remarks=Remarks(incidents=[told, unknown]),
            figures=Figures(seconds=1.0, waited=1.5),
        ),
        Outcome(
            "fast", reason="tier_busy", called=False, figures=Figures(waited=60.0, placed=False)
        ),
        GONE,
        replace(HIGHER, remarks=Remarks(incidents=[cut])),
    )
    assert counts_of(one, "ok") == {
        "fast": {
            "visits": 1,
            "attempts": 2,
            "calls": 2,
            "calls:edit": 1,
            "calls:other": 1,
            "model_seconds": 1.0,
            "failed": 2,
            "failed:tool_validation_failure": 1,
            "failed:unreachable": 1,
            "retries": 2,
            "left": 1,
            "left:server_error": 1,
            "queued": 2,
            "queue_seconds": 61.5,
            "queue_timeouts": 1,
            "invalid_calls": 2,
            "invalid_calls:edit": 1,
            "invalid_calls:other": 1,
        },
        "standard": {
            "visits": 1,
            "attempts": 1,
            "model_seconds": 1.0,
            "replies_cut": 1,
            "requests": 1,
            "seconds": 9.0,
            "turns": 1,
            "escalated_right": 1,
            "at:25:moved": 1,
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
    one = exchange(replace(OK, tier="gpt"), route=Route((), "gpt"))
    assert list(counts_of(one, "ok")) == ["other"]
