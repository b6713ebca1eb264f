"""A bounded mapping that drops what was set longest ago."""

from __future__ import annotations

from mlx_stack_proxy.recent import Recent


def test_a_runs_value_outlives_its_oldest_keys() -> None:
    recent: Recent[str, int] = Recent(2)
    recent["first"] = 1
    recent["other"] = 2
    assert recent.find_and_refresh(["first", "second"]) == 1
    assert [*recent] == ["other", "second"], "the full mapping dropped the key that was found"
    assert recent.find_and_refresh(["first", "second", "third"]) == 1
    assert recent.find_and_refresh(["unknown"]) is None
