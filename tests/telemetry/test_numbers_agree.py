"""The report, the page's JSON, /metrics, the headers and the records tell the same numbers."""

from __future__ import annotations

import asyncio
import re
from collections import Counter
from typing import Any

from hypothesis import example, given, settings
from hypothesis import strategies as st

from mlx_stack_proxy.driver import response_headers
from mlx_stack_proxy.driver.services import Services
from mlx_stack_proxy.engine.client_errors import error_of
from mlx_stack_proxy.engine.exchange import Exchange
from mlx_stack_proxy.engine.outcome import Figures, Incident, Outcome, Remarks
from mlx_stack_proxy.engine.steps import Deliver, Fail, Move, PassOn, Retry, Start, Step, outcome_of
from mlx_stack_proxy.engine.verdicts import (
    CallFailure,
    Failure,
    InvalidToolCall,
    LoopDetected,
    Verdict,
    empty,
    reason_of,
    rejected,
)
from mlx_stack_proxy.errors import ProxyError
from mlx_stack_proxy.main import build_services
from mlx_stack_proxy.memory_pressure.pressure import NO_PRESSURE
from mlx_stack_proxy.server.kept import report_of
from mlx_stack_proxy.server.status import status
from mlx_stack_proxy.settings import Settings
from mlx_stack_proxy.telemetry import accounts
from mlx_stack_proxy.telemetry.counters import BROKEN_PARTS, counts_of
from mlx_stack_proxy.telemetry.report import ReportScope
from mlx_stack_proxy.tool_validation.reply_parts import bad_calls
from tests.engine.exchanges import client_request
from tests.engine.exchanges import exchange as begun
from tests.support.running_proxy import proxy_config

NOW = 1_780_000_000.0
TWICE_WRONG = (
    CallFailure("edit", "missing_required", "…", 0, 0, "path"),
    CallFailure("edit", "wrong_type", "…", 0, 0, "line"),
)
ENDS: dict[str, Verdict | None] = {
    "right": None,
    "two faults in one call": InvalidToolCall(TWICE_WRONG),
    "a tool of its own": InvalidToolCall((CallFailure("my prompt", "unknown_tool", "…"),)),
    "doubted": InvalidToolCall((CallFailure("edit", "placeholder", "…", 0, 0),), doubt=True),
    "a loop": LoopDetected("repetition", 3, "…", pattern="ab"),
    "a server's error": Failure("server_error", "CUDA out of memory", status=500),
    "unreachable": Failure("unreachable", "refused"),
    "silent": Failure("timeout", "nothing came"),
    "empty": empty(),
    "too long": Failure("context_overflow", "it does not fit", status=400),
    "no place": Failure("tier_busy", "full"),
    "no budget": rejected(ProxyError(429, "budget_exceeded", "…", extra={"scope": "hour"})),
}
# Above which share docs/observability.md has each advice given.
SHARES = {
    "tool_often_wrong": 0.2,
    "calls_as_text": 0.5,
    "tier_mostly_left": 0.5,
    "queue_always_full": 0.5,
    "limit_that_cuts": 0.05,
    "window_too_small": 0.05,
}
UNCALLED = ("no place", "no budget")
ATTEMPT = st.tuples(
    st.sampled_from([*ENDS]), st.sampled_from(["fast", "standard"]), st.integers(0, 9)
)
EXCHANGE = st.fixed_dictionaries(
    {
        "agent": st.sampled_from(["codex", "claude-code"]),
        "attempts": st.lists(ATTEMPT, max_size=4),
        "end": st.sampled_from(["judged", "judged", "judged", "client_left", "passed on"]),
        "passed_over": st.booleans(),
        "repaired": st.booleans(),
    }
)


def outcome_of_attempt(end: str, tier: str, tokens: int, *, repaired: bool) -> Outcome:
    verdict = ENDS[end]
    remarks = Remarks()
    if isinstance(verdict, InvalidToolCall):
        remarks.calls = ["edit"]
        mark = {"doubt": True} if verdict.doubt else {}
        remarks.incidents = [
            Incident("tool_call_invalid", (kind,), {**detail, **mark})
            for kind, detail in bad_calls(verdict.failures)
        ]
    if isinstance(verdict, LoopDetected):
        detail = {"repeats": 3, "pattern": verdict.pattern}
        remarks.incidents = [Incident("loop_break", ("repetition", "circuit_break"), detail)]
    if verdict is None and repaired:
        remarks.calls = ["edit", "edit"]
        remarks.incidents = [Incident("tool_call_repaired", ("comma",))]
        remarks.reply_notes = {"Repairs": "comma"}
    called = end not in UNCALLED
    return Outcome(
        tier,
        verdict,
        reason_of(verdict),
        called=called,
        remarks=remarks,
        figures=Figures(
            seconds=1.5 if called else 0.0,
            placed=end != "no place",
            waited=7.0 if end in ("no place", "silent") else 0.0,
            tokens_in=tokens if called else 0,
            tokens_out=2 * tokens if called else 0,
        ),
    )


def last_step(exchange: Exchange, end: str) -> Step:
    if end == "passed on":
        return PassOn(400, (), b"{}")
    verdict = exchange.outcomes[-1].verdict if exchange.outcomes else ENDS["no budget"]
    if verdict is None:
        return Deliver()
    return Fail(error_of(exchange, verdict))


async def run(services: Services, given: dict[str, Any]) -> None:
    """An exchange, told to the accounts as the engine tells them."""
    asked = client_request(tools=[{"function": {"name": "edit"}}])
    exchange = begun(asked, agent=given["agent"], id=f"req_{len(services.records)}")
    attempts = given["attempts"]
    first = attempts[0][1] if attempts else "fast"
    over = given["passed_over"] and first == "standard"
    exchange.start = Start(first, "memory_pressure" if over else "")
    if over:
        accounts.note_escalated(services, exchange, "fast", "memory_pressure")
    result = "client_left"
    for number, (end, tier, tokens) in enumerate(attempts):
        outcome = outcome_of_attempt(end, tier, tokens, repaired=given["repaired"])
        exchange.outcomes.append(outcome)
        step: Step
        if number + 1 < len(attempts):
            following = attempts[number + 1][1]
            reason = outcome.reason or "timeout"
            step = Retry(reason, 1) if following == tier else Move(following, reason)
        elif given["end"] == "client_left":
            accounts.note_attempt(services, exchange)
            break
        else:
            step = last_step(exchange, given["end"])
            result = outcome_of(step)  # type: ignore[arg-type]
        exchange.steps.append(step)
        accounts.note_attempt(services, exchange)
    if not attempts and given["end"] != "client_left":
        result = outcome_of(last_step(exchange, given["end"]))  # type: ignore[arg-type]
    accounts.count_end(services, exchange, result)
    await services.store.write(services.journal.take(), NOW)
    accounts.close(services, services.records[-1], result, 3.0)
    headers = response_headers.values(exchange, None, NO_PRESSURE)
    record = services.records[-1]
    assert headers["Attempts"] == str(sum(one.called for one in record.attempts))
    assert headers["Retries"] == str(sum(one.then == "retry" for one in record.attempts))
    assert headers["Request-Id"] == record.id and headers["Tier"] == record.tier
    assert headers.get("Escalated-From", "") == record.escalated_from
    assert headers.get("Escalation-Reason", "") == record.escalation_reason
    assert headers.get("Repairs", "") == record.repairs


def metrics_of(services: Services) -> Counter[str]:
    """Each counter's sum over its labels, and the sum for each value of each label."""
    found: Counter[str] = Counter()
    for line in services.metrics.render(agents=True).decode().splitlines():
        match = re.fullmatch(r"mlx_stack_(\w+?)(?:_total)?(?:\{(.*)\})? ([\d.e+]+)", line)
        if match is None:
            continue
        name, labels, number = match[1], match[2] or "", int(float(match[3]))
        found[name] += number
        for label, value in re.findall(r'(\w+)="([^"]*)"', labels):
            found[f"{name} {label}={value}"] += number
    return found


def ends(*names: str) -> dict[str, Any]:
    attempts = [(name, "fast", 1) for name in names]
    rest = {"agent": "codex", "end": "judged", "passed_over": False, "repaired": False}
    return {**rest, "attempts": attempts}


@settings(max_examples=60, deadline=None)
@example([ends("silent", "no place")], 10)  # one of two that waited got no place
@example([ends("two faults in one call", "right")], 10)
@example([ends("too long", "right")], 10)
@given(st.lists(EXCHANGE, min_size=1, max_size=12), st.integers(1, 10))
def test_all_numbers_agree(exchanges: list[dict[str, Any]], times: int) -> None:
    asyncio.run(agree(exchanges * times))  # advice needs ten of a kind


async def agree(exchanges: list[dict[str, Any]]) -> None:
    config = proxy_config("http://127.0.0.1:9", {"state.backend": "memory"})
    services = build_services(Settings(**config), wall_clock=lambda: NOW)
    await services.store.open()
    try:
        for one in exchanges:
            await run(services, one)
        await services.journal.written()
        report = await report_of(services, ReportScope(NOW - 3600, NOW))
        page = await status(services)
    finally:
        await services.upstream.aclose()
        await services.store.close()
    compare(report, metrics_of(services), services, len(exchanges))
    assert page["day"]["totals"] == report["totals"]


def compare(report: Any, metrics: Counter[str], services: Services, number: int) -> None:
    totals: Counter[str] = Counter(report["totals"])
    records: Counter[str] = Counter()
    for record in services.records:
        for counts in counts_of(record).values():
            records.update({n: c for n, c in counts.items() if not n.startswith("at:")})  # type: ignore[arg-type]
    assert {n: round(c, 3) for n, c in records.items()} == report["totals"]
    assert number == totals["requests"] == metrics["requests"]
    assert totals["turns"] == metrics["requests outcome=ok"]
    assert totals["client_left"] == metrics["requests outcome=client_left"]
    assert totals["errors:budget_exceeded"] == metrics["requests outcome=budget_exceeded"]
    assert totals["attempts"] == metrics["attempts"]
    assert totals["failed:timeout"] == metrics["attempts result=timeout"]
    assert totals["retries"] == metrics["retries"]
    assert totals["left"] + totals["passed_over"] == metrics["escalations"]
    assert totals["invalid_calls"] + totals["doubted_calls"] == metrics["tool_call_failures"]
    assert totals["repairs"] == metrics["tool_call_repairs"]
    assert totals["loops_broken"] == metrics["loops"]
    assert totals["tokens_in"] == metrics["tokens direction=input"]
    assert totals["tokens_out"] == metrics["tokens direction=output"]
    for agent, counts in report["by_agent"].items():
        assert counts["requests"] == metrics[f"agent_requests agent={agent}"]
    compare_parts(report, totals)


def compare_parts(report: Any, totals: Counter[str]) -> None:
    """What the legend, the hours, the five minutes and the headline say."""
    parts: Counter[str] = Counter(report["parts"])
    assert sum(parts.values()) == totals["requests"]
    of_hours = sum((Counter(hour["parts"]) for hour in report["hours"] if hour["agent"]), Counter())
    of_minutes = sum((Counter(slot["parts"]) for slot in report["minutes"]), Counter())
    assert of_hours == of_minutes == parts
    [lines] = [part["lines"] for part in report["said"] if part["about"] == "replies"] or [[]]
    broken = sum(parts[part] for part in BROKEN_PARTS)
    if broken:
        assert lines[0].startswith(f"{broken} of {broken + parts['right']} repl")
    if parts["refused"]:
        assert any(line.startswith(f"Refused: {parts['refused']} request") for line in lines)
    for counter in ("invalid_calls", "doubted_calls"):
        for tool in ("edit", "other"):
            assert totals[f"{counter}:{tool}"] <= totals[f"calls:{tool}"]
    for item in report["advice"]:
        part, whole = map(int, re.findall(r"\d+", item["says"].replace(",", ""))[:2])
        assert SHARES[item["rule"]] * whole < part <= whole, item
    assert totals["invalid_calls"] <= totals["calls"]
    assert totals["left"] <= totals["visits"]
