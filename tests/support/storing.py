"""Shorthands for tests that write one kind of change into a store."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from msgspec.structs import replace
from orjson import dumps

from mlx_stack_proxy.state.hourly import Deltas
from mlx_stack_proxy.state.store import BreakerState, Change, KeptEvent, Limit, Settlement, Store


async def commit(
    store: Store, session: str, change: Change, now: float, settlement: Settlement | None = None
) -> Mapping[str, int]:
    return await store.write(replace(change, session=session, settlement=settlement), now)


async def settle(
    store: Store, ticket: str, amounts: Mapping[Limit, int], now: float
) -> Mapping[str, int]:
    return await store.write(Change(settlement=Settlement(ticket, amounts)), now)


async def add_events(store: Store, events: Sequence[Mapping[str, Any]]) -> None:
    kept = [KeptEvent(e["time"], e["kind"], e["session"], dumps(e).decode()) for e in events]
    await store.write(Change(events=kept), 0.0)


async def add_counts(store: Store, counts: Deltas) -> None:
    await store.write(Change(counts=counts), 0.0)


async def save_breaker(store: Store, tier: str, state: BreakerState) -> None:
    await store.write(Change(breakers={tier: state}), 0.0)
