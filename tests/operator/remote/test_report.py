"""The report as a person reads it: its sentences, its advice, one screen of 80 columns."""

from __future__ import annotations

import time
from typing import Any

import pytest

from mlx_stack_proxy.operator import WIDTH
from mlx_stack_proxy.operator.remote.client import with_zone
from mlx_stack_proxy.operator.remote.report import markdown, night, screen
from mlx_stack_proxy.settings import Settings
from mlx_stack_proxy.settings_source import from_mapping
from mlx_stack_proxy.state.hourly import HOUR, HourKey, hour_of
from mlx_stack_proxy.telemetry.advice import RULES, advice
from mlx_stack_proxy.telemetry.report import ReportScope, build
from mlx_stack_proxy.telemetry.report_words import span

NOW = 1_780_000_000.0
FAST = HourKey(hour_of(NOW), "claude-cli", "fast")
SETTINGS: Settings = from_mapping(
    {
        "tiers": {"fast": {"model": "f"}, "standard": {"model": "s"}},
        "reliability": {
            "escalation": {"chain": ["fast", "standard"]},
            "token_budget": {"downgrade_tier": "fast"},
        },
    }
)
NIGHT = {
    "requests": 1204,
    "turns": 1204,
    "right_at_once": 1163,
    "repaired": 11,
    "found_in_text": 10,
    "retried_right": 20,
    "failed": 20,
    "failed:tool_validation_failure": 20,
    "calls": 900,
    "calls:read_file": 40,
    "invalid_calls": 20,
    "invalid_calls:read_file": 20,
    "attempts": 1224,
    "retries": 20,
    "loops_broken": 2,
    "tokens_saved": 12_000,
    "model_seconds": 18_720,
    "silent_seconds": 2400,
}


def report(rows: dict[HourKey, dict[str, Any]], *events: dict[str, Any]) -> dict[str, Any]:
    asked = ReportScope(NOW - HOUR, NOW)
    return build(asked, rows, events, SETTINGS)


def words(found: dict[str, Any]) -> str:
    return "\n".join(line for part in found["said"] for line in part["lines"])


def event(kind: str, ago: float, tier: str = "", **detail: Any) -> dict[str, Any]:
    given = {"kind": kind, "time": NOW - ago, "tier": tier, "detail": detail}
    return {**given, "session": "ab" * 16, "agent": "claude-cli", "request_id": f"req_{ago:.0f}"}


def test_a_night_in_which_nobody_saw_anything() -> None:
    said = words(report({FAST: NIGHT}))
    assert "1,204 requests, all by claude-cli." in said
    assert "41 of 1,204 replies were broken; none reached an agent." in said
    assert "11 repaired, 10 found in text, 20 right after a retry" in said
    assert "a wrong tool call 20" in said
    assert "Loops: 2 broken." in said and "12,000 tokens" in said
    assert "5 h 12 min, 40 min of it before the first token" in said


def test_what_failed_after_all_is_told_with_its_command() -> None:
    row = {"requests": 3, "turns": 2, "right_at_once": 2, "errors": 1, "errors:all_tiers_failed": 1}
    failed = event("exhausted", 60, "fast", type="all_tiers_failed", status=502, attempts=[{}, {}])
    found = report({FAST: row}, failed)
    said = words(found)
    assert "1 of 3 replies was broken; none reached an agent, 1 ended in an error." in said
    assert "claude-cli: all_tiers_failed after 2 attempts:" in said
    assert "\n  mlx-stack-proxy why req_60" in said
    assert found["failures"][0]["status"] == 502


def test_outages() -> None:
    found = report(
        {},
        event("upstream_down", 300),
        event("upstream_up", 240),
        event("tier_degraded", 200, "fast"),
        event("tier_degraded", 190, "fast"),
        event("tier_recovered", 100, "fast"),
        event("tier_degraded", 30, "fast"),
    )
    assert [one["seconds"] for one in found["outages"]] == [60, 100, 30]
    assert [one["until"] is None for one in found["outages"]] == [False, False, True]
    said = words(found)
    assert "for 1 min." in said
    assert "The breaker of fast was open twice, for 2 min 10 s in all so far." in said


def test_no_work_has_no_line() -> None:
    counts = {"requests": 3, "model_seconds": 0.01}
    assert "worked" not in words(build(ReportScope(NOW - HOUR, NOW), {FAST: counts}, [], SETTINGS))


@pytest.mark.parametrize(
    ("calls", "said"),
    [
        # `other` also counts calls that never came, and those that disobey `tool_choice`.
        ({"other": 8, "edit": 1}, "edit 1, others 8."),
        ({"edit": 1}, "edit 1."),
        ({"other": 2} | dict.fromkeys("abcdefg", 1), "a 1, b 1, c 1, d 1, e 1, others 4."),
    ],
)
def test_calls_that_were_wrong(calls: dict[str, int], said: str) -> None:
    counts = {"requests": 9, **{f"invalid_calls:{tool}": n for tool, n in calls.items()}}
    lines = words(build(ReportScope(NOW - HOUR, NOW), {FAST: counts}, [], SETTINGS))
    assert f"Invalid tool calls: {said}" in lines
    counts = {"requests": 9, "failed:tool_validation_failure": 8, "invalid_calls:other": 8}
    lines = words(build(ReportScope(NOW - HOUR, NOW), {FAST: counts}, [], SETTINGS))
    assert "a wrong tool call 8." in lines and "Invalid" not in lines


def test_an_agent_alone() -> None:
    rows = {FAST: {"requests": 1}, FAST._replace(agent="codex"): {"requests": 5}}
    rows[HourKey(FAST.hour, "", "")] = {"starts": 2, "kills": 1}
    found = build(ReportScope(NOW - HOUR, NOW, "codex"), rows, [], SETTINGS)
    assert found["totals"] == {"requests": 5}
    assert found["agents"] == ["claude-cli", "codex"]
    assert [one["agent"] for one in found["hours"]] == ["", "codex"]
    assert "started twice, once after a kill or a crash" in words(found)


@pytest.mark.parametrize(
    ("rule", "sums", "line"),
    [
        (
            "tool_often_wrong",
            {"attempts": 40, "calls:edit": 40, "invalid_calls:edit": 9},
            "max_retries: 1",
        ),
        ("calls_as_text", {"calls": 40, "calls_found": 40}, "guided: always"),
        (
            "tier_mostly_left",
            {"visits": 20, "left:timeout": 11, "left": 11},
            "chain: [standard]",
        ),
        (
            "queue_always_full",
            {"attempts": 20, "queued": 11, "queue_seconds": 60},
            "max_concurrency: 8",
        ),
        ("limit_that_cuts", {"attempts": 20, "replies_cut": 2}, "max_output_tokens: 32768"),
        (
            "window_too_small",
            {"attempts": 20, "failed:context_overflow": 2},
            "context_window: 16384",
        ),
    ],
)
def test_advice(rule: str, sums: dict[str, float], line: str) -> None:
    [found] = advice({"fast": sums}, SETTINGS)
    assert (found["rule"], found["tier"], found["line"]) == (rule, "fast", line)
    # A figure less than half as bad proves nothing, nor do a few figures.
    assert advice({"fast": {**sums, **dict.fromkeys(list(sums)[-1:], 0)}}, SETTINGS) == []
    assert advice({"fast": {name: number / 20 for name, number in sums.items()}}, SETTINGS) == []


def test_advice_says_how_calls_are_written() -> None:
    sums = {"calls": 40, "calls_found": 40, "repairs:doubled_braces": 30}
    [found] = advice({"fast": sums}, SETTINGS)
    assert found["says"].startswith(
        "fast writes every call as text; its template shows doubled braces"
    )
    [found] = advice({"fast": {**sums, "calls_found": 30, "repairs:doubled_braces": 2}}, SETTINGS)
    assert found["says"].startswith("fast writes 30 of 40 calls as text:")


def test_what_reached_an_agent() -> None:
    row = {"requests": 46, "turns": 46, "found_in_text": 40, "went_out_broken": 6}
    said = words(report({FAST: {**row, "calls_as_text": 5}}))
    assert "46 of 46 replies were broken; 6 reached an agent." in said
    assert "5 calls reached an agent as text." in said


def test_no_advice_names_a_tool_that_was_not_offered() -> None:
    assert (
        advice({"fast": {"attempts": 40, "calls:other": 40, "invalid_calls:other": 40}}, SETTINGS)
        == []
    )


def test_every_rule_of_advice_is_tested() -> None:
    marks = [mark for mark in test_advice.pytestmark if mark.name == "parametrize"]  # type: ignore[attr-defined]
    assert [case[0] for case in marks[0].args[1]] == [rule.__name__ for rule in RULES]


def test_a_used_up_budget_names_its_command() -> None:
    said = words(report({FAST: {"requests": 2, "errors": 2, "errors:budget_exceeded": 2}}))
    assert "mlx-stack-proxy events --kind budget_exceeded" in said


def test_the_line_of_advice_is_a_line_of_the_file() -> None:
    import yaml

    sums = {"attempts": 30, "retries": 10, "left": 11, "calls:edit": 40, "invalid_calls:edit": 9}
    for one in advice({"fast": sums}, SETTINGS):
        *parents, _ = one["setting"].split(".")
        given: dict[str, Any] = yaml.safe_load(one["line"])
        for parent in reversed(parents):
            given = {parent: given}
        tiers = {"tiers": {"fast": {"model": "f"}, "standard": {"model": "s"}}}
        budget = {"reliability": {"token_budget": {"downgrade_tier": "standard"}}}
        chain = {"escalation": {"chain": ["fast", "standard"]}}
        whole = {**tiers, "reliability": {**budget["reliability"], **chain, **given["reliability"]}}
        from_mapping(whole)


def test_it_fits_a_screen() -> None:
    failed = [event("exhausted", n, "fast", type="all_tiers_failed") for n in range(30, 0, -1)]
    found = report({FAST: {**NIGHT, "errors": 30, "errors:all_tiers_failed": 30}}, *failed)
    lines = list(screen(found))
    assert len(lines) <= 40
    assert all(len(line) <= WIDTH for line in lines if "mlx-stack-proxy why" not in line)
    assert any(line.startswith("advice") for line in lines)
    assert any("max_retries: 1" in line for line in lines)
    assert next(markdown(found)).startswith("# mlx-stack-proxy, 20")


def test_the_night_is_the_last_one() -> None:
    def at(day: int, hour: int) -> float:
        return time.mktime((2026, 11, day, hour, 0, 0, 0, 0, -1))

    assert night(at(26, 9)) == (at(25, 20), at(26, 8))
    assert night(at(26, 3)) == (at(25, 20), at(26, 3))
    assert night(at(26, 21)) == (at(26, 20), at(26, 21))
    assert night(at(1, 9))[0] == time.mktime((2026, 10, 31, 20, 0, 0, 0, 0, -1))


@pytest.mark.parametrize(
    ("seconds", "said"),
    [(0.25, "0.2 s"), (59.6, "1 min"), (3661, "1 h 1 min"), (9e4, "1 d 1 h")],
)
def test_spans(seconds: float, said: str) -> None:
    assert span(seconds) == said


def test_a_time_without_a_zone_is_this_machines(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "Asia/Tokyo")
    time.tzset()
    assert with_zone("2026-11-22T08:00") == "2026-11-22T08:00:00+09:00"
    assert with_zone("2026-11-22T08:00:00Z") == "2026-11-22T17:00:00+09:00"
    assert (with_zone("12h"), with_zone("1780000000")) == ("12h", "1780000000")
    monkeypatch.undo()
    time.tzset()
