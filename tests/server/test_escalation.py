"""Each way in which a tier fails, for each kind of client: the next tier answers, or it is said."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.faults.catalogue import FAULTS, Fault, settings, tiers_with, with_caller
from tests.faults.clients import (
    ERROR,
    EVERYONE,
    GOOD,
    HALF,
    Client,
    Outcome,
    ask,
    behind_laps,
    judged,
)
from tests.server.conftest import StartProxy
from tests.server.polling import metric
from tests.support.running_proxy import RunningProxy

SILENCE_SECONDS = 1.0  # by then a call has arrived, on a busy machine too
PATIENCE_SECONDS = 60.0  # where it is not about silence: this machine may be short of time


def settings_for(fault: Fault, *tiers: str) -> dict[str, Any]:
    """Short is only the limit that the fault shall run into, on the tiers that have it."""
    found = settings(PATIENCE_SECONDS)
    if fault.reason == "timeout":
        ours = "idle_timeout" if fault.live == ERROR else "first_token_timeout"
        short = dict.fromkeys((ours, "tool_silence_timeout"), SILENCE_SECONDS)
        for tier in tiers:
            found["tiers"][tier] |= short
    return found


async def ask_all(proxy: RunningProxy, fault: Fault) -> list[tuple[Client, Outcome]]:
    """All clients that can see the fault, at once."""
    clients = [client for client in EVERYONE if fault.fits(client)]
    outcomes = await asyncio.gather(*(ask(proxy.client, one, fault.after) for one in clients))
    return list(zip(clients, outcomes, strict=True))


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
async def test_a_tier_that_fails(fault: Fault, start_proxy: StartProxy) -> None:
    """All clients at once; each has a session of its own."""
    proxy = await start_proxy(settings_for(fault, "fast"))
    proxy.upstream.always(tiers_with(fault))
    for client, outcome in await ask_all(proxy, fault):
        calls = with_caller(client, proxy.upstream)
        assert judged(outcome, client) == fault.expected(client), client.name
        assert outcome.attempts == len(calls), client.name
        on_fast = fault.calls_of(client)
        assert calls[:on_fast] == ["fast"] * on_fast, client.name
        if fault.expected(client) == GOOD:
            assert calls[on_fast:] == ["standard"], client.name
            check_good(outcome, client, fault)
        else:
            assert len(calls) == on_fast, client.name
            check_error(outcome, fault)
    moved = await metric(
        proxy,
        "mlx_stack_escalations_total",
        from_tier="fast",
        to_tier="standard",
        reason=fault.reason,
    )
    assert moved == sum(fault.expected(client) == GOOD for client in EVERYONE if fault.fits(client))
    assert not await metric(proxy, "mlx_stack_stage_faults_total")


def check_good(outcome: Outcome, client: Client, fault: Fault) -> None:
    """What the headers and the closing comment say."""
    assert outcome.status == 200
    assert outcome.tier == "standard", client.name
    assert outcome.said["escalated_from"] == "fast"
    assert outcome.said["escalation_reason"] == fault.reason
    assert int(outcome.said["retries"]) == fault.calls - 1
    first = "fast" if behind_laps(outcome.text) != outcome.text else "standard"
    assert outcome.headers["x-mlx-stack-tier"] == first, "else nothing went out before"


def check_error(outcome: Outcome, fault: Fault) -> None:
    """Text was out: the stream says what happened, and that is all."""
    assert outcome.status == 200
    assert outcome.text.startswith(HALF) or fault.reason == "loop_detected"
    assert outcome.error is not None
    assert [attempt["reason"] for attempt in outcome.error["attempts"]] == [fault.reason]
    assert [attempt["tier"] for attempt in outcome.error["attempts"]] == ["fast"]
    assert "escalated_from" not in outcome.said


OF_EACH_KIND = (
    "reset before headers",
    "reset mid-stream, after text",
    "headers, then no first token",
    "stall after text",
    "500",
    "429, cooldown",
    "truncated JSON, 200",
    "empty reply",
    "bad tool call",
    "loop across turns",
    "loop while generating",
    "context overflow, 400",
)
ERROR_TYPES = {
    "loop_detected": "loop_detected",
    "tool_validation_failure": "tool_validation_failed",
}


@pytest.mark.parametrize(
    "fault", [one for one in FAULTS if one.name in OF_EACH_KIND], ids=lambda fault: fault.name
)
async def test_every_tier_fails(fault: Fault, start_proxy: StartProxy) -> None:
    """Nobody is left to answer: one error, with every attempt, and never a half reply."""
    proxy = await start_proxy(settings_for(fault, "fast", "standard"))
    proxy.upstream.always(tiers_with(fault, everywhere=True))
    for client, outcome in await ask_all(proxy, fault):
        calls = with_caller(client, proxy.upstream)
        assert outcome.attempts == len(calls), client.name
        if fault.name == "loop across turns":
            # Two tiers want the very same call: it may be a rightful wait.
            assert (calls, outcome.finish) == (["fast", "standard"], ["tool_calls"])
            continue
        assert judged(outcome, client) == ERROR, client.name
        assert outcome.error is not None
        if fault.reason != "context_overflow":  # that is upstream's own, as it came
            assert [attempt["tier"] for attempt in outcome.error["attempts"]] == calls
            assert outcome.error["type"] == ERROR_TYPES.get(fault.reason, "all_tiers_failed")
        if fault.expected(client) == ERROR:
            assert (outcome.status, set(calls)) == (200, {"fast"}), "text was out"
        elif fault.name == "loop while generating" and client.how == "live":
            assert (outcome.status, calls) == (200, ["fast", "standard"]), "its text was out, too"
        else:
            assert outcome.status >= 400
            assert outcome.headers["x-should-retry"] == "false"
            both = ["fast", "standard"]
            # That no window is larger is learnt from the first request that was told so.
            ways = (both, ["fast"]) if fault.reason == "context_overflow" else (both,)
            assert list(dict.fromkeys(calls)) in ways, client.name
