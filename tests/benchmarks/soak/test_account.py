"""The agents' own account, and that the comparison with the report can fail."""

from __future__ import annotations

from collections import Counter

from benchmarks.soak.account import compared, counts

AT_ONCE = counts({"attempts": "1"}, True)
AGAIN = counts({"attempts": "3", "retries": "2", "repairs": "comma"}, True)
MENDED = counts({"attempts": "1", "repairs": "comma"}, True)
FOUND = counts({"attempts": "1", "repairs": "rescued,comma"}, True)
FAILED = counts({"attempts": "2", "loop": "circuit_break;detector=x"}, False)
REFUSED = counts({}, False)


def test_what_responses_prove() -> None:
    found = AT_ONCE + AGAIN + MENDED + FOUND + FAILED + REFUSED
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
    )


def test_a_figure_that_is_off_by_one_is_found() -> None:
    told = {"requests": 2, "attempts": 3, "turns": 1, "right_at_once": 1, "client_errors": 1}

    def wrong(**changes: int) -> list[str]:
        rows = compared({"by_agent": {"a": {**told, **changes}}}, "a", AT_ONCE + FAILED)
        return [what for what, saw, said in rows if saw != said]

    assert wrong() == []
    for name in ("requests", "attempts", "turns", "right_at_once", "errors"):
        assert wrong(**{name: 9}) == [f"a: {name}"]
    assert wrong(escalated_right=1) == ["a: put right by asking again"]
