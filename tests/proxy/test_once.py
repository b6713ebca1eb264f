"""What is said once a while only."""

from __future__ import annotations

import pytest

from mlx_stack_proxy.engine import rate_limit
from mlx_stack_proxy.engine.rate_limit import Once


def test_once_a_minute_of_each_thing() -> None:
    now = [100.0]
    one = Once(lambda: now[0])
    assert [one.first("a"), one.first("a"), one.first(("b", 1))] == [True, False, True]
    now[0] += rate_limit.SECONDS - 0.1
    assert not one.first("a")
    now[0] += 0.1
    assert one.first("a")
    assert not one.first("a")


def test_it_remembers_so_many_things_and_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rate_limit, "MOST", 3)
    one = Once(lambda: 0.0)
    assert all(one.first(thing) for thing in "abcd")
    assert not one.first("b")
    assert one.first("a"), "the oldest was forgotten"
