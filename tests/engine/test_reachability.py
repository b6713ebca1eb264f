"""Whether LiteLLM takes connections: who asks, and who is told."""

from __future__ import annotations

import asyncio

import pytest

from mlx_stack_proxy.engine import reachability
from mlx_stack_proxy.engine.reachability import Reachability
from tests.support.waiting import until


async def test_lost_again_at_once_has_one_asker(monkeypatch: pytest.MonkeyPatch) -> None:
    """It came back while the asker waited for its next turn, and was lost within that time."""
    monkeypatch.setattr(reachability, "INTERVAL_SECONDS", 0.02)
    before = asyncio.all_tasks()
    asked: list[None] = []
    is_there = False

    async def ask() -> bool:
        asked.append(None)
        return is_there

    told: list[str] = []
    reach = Reachability(ask)
    reach.watch(lambda why: told.append("down"), lambda seconds: told.append("up"))
    for _ in range(3):
        reach.lost("refused")
        reach.answered()
    reach.lost("refused")
    await until(lambda: len(asked) >= 2)
    assert len(asyncio.all_tasks() - before) == 1
    is_there = True
    await until(lambda: told[-1] == "up")
    assert told == ["down", "up"] * 4
    await until(lambda: asyncio.all_tasks() == before)
    is_there = False
    reach.lost("refused")  # after its asker has ended, another begins
    assert len(asyncio.all_tasks() - before) == 1
    await reach.close()
