"""The screen of `status`: what it says, and that it fits 80 columns whatever the figures."""

from __future__ import annotations

import io
from typing import Any

import pytest
from rich.console import Console

from mlx_stack_proxy.operator.remote.status import number, screen

NOW = 1_780_000_000.0
TOTALS = (
    *("requests", "turns", "retries", "left", "invalid_calls", "repairs"),
    *("calls_found", "loops_told", "loops_broken", "loops_cut"),
    *("tokens_in", "tokens_out", "tokens_saved"),
)
COUNTS = {"requests": 120, "attempts": 130, "failed": 8, "retries": 5, "left": 3}


def tier(**changes: Any) -> dict[str, Any]:
    plain = {
        **{"model": "m", "local": True, "state": "ok", "degraded_until": None, "failures": 0},
        **{"in_flight": 1, "max_concurrency": 4, "waiting": 2, "tokens_per_second": 41.23},
    }
    return {**plain, **changes}


def day(totals: dict[str, int], *tiers: str) -> dict[str, Any]:
    return {"totals": totals, "by_tier": dict.fromkeys(tiers, COUNTS)}


def found(**changes: Any) -> dict[str, Any]:
    plain: dict[str, Any] = {
        **{"version": "0.1.0", "started": NOW - 11_520, "stopping": False, "running": 2},
        **{"sessions": 14, "store": "ok", "chain": ["fast"], "tiers": {"fast": tier()}},
        "day": day({name: place for place, name in enumerate(TOTALS, 1)}, "fast"),
        "litellm": "ok",
        "configuration": "ok",
        "budgets": [{"scope": "hour", "used": 500_000, "limit": 2_000_000}],
    }
    return {**plain, **changes}


def drawn(given: dict[str, Any], *, terminal: bool = False) -> str:
    out = io.StringIO()
    console = Console(file=out, width=80, highlight=False, force_terminal=terminal)
    console.print(screen(given, "http://127.0.0.1:4100", NOW))
    return "\n".join(line.rstrip() for line in out.getvalue().splitlines())


def test_the_whole_screen() -> None:
    tiers = {"fast": tier(), "standard": tier(state="degraded", degraded_until=NOW + 72)}
    tiers["premium"] = tier(state="degraded", degraded_until=NOW - 1, tokens_per_second=0)
    totals = {name: place for place, name in enumerate(TOTALS, 1)}
    assert (
        drawn(found(tiers=tiers, day=day(totals, *tiers)))
        == """\
mlx-stack-proxy 0.1.0 at http://127.0.0.1:4100, up 3h 12m
2 running, 14 sessions

tier     state       calls queue tok/s attempts failed retries moved
fast     ok            1/4     2  41.2      130      8       5     3
standard down 1m 12s   1/4     2  41.2      130      8       5     3
premium  probing       1/4     2     -      130      8       5     3

24 hours     1 request, 2 delivered, 3 retries, 4 moved up
tool calls   5 invalid, 6 repaired, 7 found in text
loops        8 warned, 9 broken, 10 replies shortened
tokens       11 in, 12 out, 13 saved at most
budget hour  #####............... 25%  500k of 2.00M in 60 min"""
    )


def test_the_largest_figures_fit() -> None:
    huge = 10**9 - 1
    name = "a-tier-with-a-name-that-is-long"
    row = {"in_flight": 999, "max_concurrency": 999, "waiting": huge, "tokens_per_second": 1e6}
    tiers = {name: tier(**row, state="degraded", degraded_until=NOW + 86_399)}
    budgets = [{"scope": "tier:premium", "used": huge * 10, "limit": huge}]
    totals = {"totals": dict.fromkeys(TOTALS, huge), "by_tier": {name: dict.fromkeys(COUNTS, huge)}}
    text = drawn(found(tiers=tiers, day=totals, budgets=budgets, sessions=huge))
    assert max(map(len, text.splitlines())) <= 80
    assert "…" not in text.replace("a-tier-with…", ""), "only a name may be cut"
    assert "1000M" in text and "down 23h 59m" in text


REFUSED = {"refused": ["tiers: none", "server.port: no number"], "restart_due": []}
LONG_NAMED = {"scope": f"tier:{'long' * 16}", "used": 100, "limit": 1000}


@pytest.mark.parametrize(
    ("changes", "parts"),
    [
        (
            {"day": day(dict.fromkeys(TOTALS, 1))},
            ["1 request, ", "1 retry, ", "1 reply shortened"],
        ),
        ({"day": None}, ["? requests"]),  # without the store nothing is known of the day
        ({"store": "no disk", "sessions": None}, ["store: no disk", "? sessions"]),
        ({"stopping": True, "budgets": []}, ["stopping"]),
        (
            {"memory_pressure": {"level": "critical", "cause": "swap", "sustained": True}},
            ["memory critical (swap, sustained)"],
        ),
        ({"litellm": "the connection was refused"}, ["LiteLLM: the connection was refused"]),
        ({"tiers": {"fast": tier(state="unreachable")}}, ["unreachable"]),
        (
            {"configuration": {"refused": [], "restart_due": ["server.port"]}},
            ["restart needed for: server.port"],
        ),
        (
            {"configuration": REFUSED},
            ["configuration refused; the old one stays in force: tiers: none, and 1 more"],
        ),
        (  # a long name leaves room for its budget
            {"budgets": [LONG_NAMED]},
            ["budget tier:longlonglon…  ##.................. 10%  100 of 1000 in 60 min"],
        ),
    ],
)
def test_what_is_said(changes: dict[str, Any], parts: list[str]) -> None:
    text = drawn(found(**changes))
    assert [part for part in parts if part not in text] == []


def test_what_waits_in_the_configuration_is_the_first_line() -> None:
    first = drawn(found(configuration=REFUSED)).splitlines()[0]
    assert first.startswith("configuration refused; the old one stays in force: tiers: none")


def test_colours_only_on_a_terminal() -> None:
    assert "\x1b[" in drawn(found(), terminal=True)
    assert "\x1b[" not in drawn(found())


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (0, "0"),
        (99_999, "99999"),
        (100_000, "100k"),
        (999_999, "1000k"),
        (1_234_567, "1.23M"),
        (12_345_678, "12.3M"),
        (3e9, "3.00G"),
    ],
)
def test_numbers_are_short(value: float, shown: str) -> None:
    assert number(value) == shown
