"""The night's own account, and that the comparison can fail."""

from __future__ import annotations

from collections import Counter
from typing import Any

from benchmarks.night.account import Seen, counts
from benchmarks.night.compare import rows

AT_ONCE = Seen("a", 200, {"attempts": "1"}, True, (10, 5))
AGAIN = Seen("a", 200, {"attempts": "3", "retries": "2", "repairs": "comma"}, True, (7, 2))
MENDED = Seen("a", 200, {"attempts": "1", "repairs": "comma"}, True)
FOUND = Seen("a", 200, {"attempts": "1", "repairs": "rescued,comma"}, True)
FAILED = Seen("a", 502, {"attempts": "2", "loop": "circuit_break;detector=x"}, False)
REFUSED = Seen("a", 503, {}, False)


def test_what_responses_prove() -> None:
    found = counts([AT_ONCE, AGAIN, MENDED, FOUND, FAILED, REFUSED])
    assert found == Counter(
        requests=5,
        attempts=8,
        turns=4,
        errors=1,
        right_at_once=1,
        put_right=1,
        repaired=1,
        found_in_text=1,
        loops_broken=1,
        tokens_in=17,
        tokens_out=7,
    )


def told() -> dict[str, Any]:
    row = {"requests": 1, "attempts": 1, "turns": 1, "right_at_once": 1}
    row |= {"tokens_in": 10, "tokens_out": 5}
    process = {"starts": 2, "kills": 1, "reloads": 1, "refused_reloads": 1, "down": 3}
    return {
        "by_agent": {"a": row},
        "totals": row,
        "parts": {"right": 1},
        "process": process,
        "outages": [{"what": "litellm", "seconds": 31.0}],
        "hours": [
            {"agent": "a", "tier": "fast", "counts": row},
            {"agent": "", "tier": "", "counts": {**process, "down": 1}},
            {"agent": "", "tier": "fast", "counts": {"down": 2}},
        ],
    }


def wrong(report: dict[str, Any]) -> list[str]:
    did = Counter(starts=2, kills=1, reloads=1, refused_reloads=1, down=1)
    found = rows(report, {"a": counts([AT_ONCE])}, did, 30.0)
    return [row.what for row in found if not row.holds]


def test_what_agrees_holds() -> None:
    assert wrong(told()) == []


def test_a_figure_that_is_off_by_one_is_found() -> None:
    for name in ("requests", "attempts", "turns", "right_at_once", "tokens_in"):
        report = told()
        report["by_agent"]["a"] = {**report["by_agent"]["a"], name: 2}
        assert [what for what in wrong(report) if name in what], name
    report = told()
    report["process"]["kills"] = 0
    report["outages"][0]["seconds"] = 99.0
    assert wrong(report) == ["process: kills", "outages of LiteLLM, seconds"]
