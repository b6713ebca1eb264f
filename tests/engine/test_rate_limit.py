"""The rate limit lets each log line or event pass once a minute."""

from __future__ import annotations

from mlx_stack_proxy.engine import rate_limit
from mlx_stack_proxy.engine.rate_limit import RateLimit


def test_once_a_minute_of_each_thing() -> None:
    now = [100.0]
    one = RateLimit(lambda: now[0])
    assert [one.allows("a"), one.allows("a"), one.allows(("b", 1))] == [True, False, True]
    now[0] += rate_limit.SECONDS - 0.1
    assert not one.allows("a")
    now[0] += 0.1
    assert one.allows("a")
    assert not one.allows("a")


def test_it_remembers_so_many_things_and_no_more() -> None:
    one = RateLimit(lambda: 0.0)
    assert all(one.allows(thing) for thing in range(rate_limit.MOST + 1))
    assert not one.allows(1)
    assert one.allows(0), "the oldest was forgotten"
