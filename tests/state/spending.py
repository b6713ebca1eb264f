"""Limits, and tokens spent under them."""

from __future__ import annotations

from mlx_stack_proxy.state.store import Change, Limit, Reserved, Store
from tests.support.storing import settle

NOW = 1_780_000_020.0  # a third into a minute
HOUR = 3600.0
ONE_TURN = Change(turns=1)


def session_limit(most: int | None, name: str = "a") -> Limit:
    return Limit(f"session:{name}", most, rolling=False)


def hour_limit(most: int | None) -> Limit:
    return Limit("hour", most, rolling=True)


async def used(store: Store, limit: Limit, now: float = NOW) -> int:
    """What counts under a limit, asked without setting anything aside."""
    free = Limit(limit.scope, None, limit.rolling)
    found = await store.reserve("probe", [free], 0, now, now)
    assert isinstance(found, Reserved)
    return found.used[limit.scope]


async def spend(store: Store, limit: Limit, tokens: int, now: float = NOW) -> None:
    await settle(store, "none", dict.fromkeys([limit], tokens), now)
