"""The lines before the budgets: who is first, who is called, who is not."""

from __future__ import annotations

import asyncio

import pytest

from mlx_stack_proxy.state.store import Limit
from mlx_stack_proxy.token_budget import budget_lines
from mlx_stack_proxy.token_budget.budget_lines import BudgetLines, Place
from tests.support.waiting import settled

HOUR, SESSION = Limit("hour", 100, rolling=True), Limit("session:a", 50, rolling=False)
LONG = 3600.0


@pytest.fixture(autouse=True)
def nobody_looks_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(budget_lines, "LOOK_SECONDS", LONG)


def waiting(lines: BudgetLines, place: Place, seconds: float = LONG) -> asyncio.Task[None]:
    due = asyncio.get_running_loop().time() + seconds
    return asyncio.create_task(lines.turn(place, due))


async def test_only_the_first_is_called_and_then_the_next() -> None:
    lines = BudgetLines()
    places = [lines.join("hour") for _ in range(3)]
    tasks = [waiting(lines, place) for place in places]
    await settled()
    assert not any(task.done() for task in tasks)
    lines.freed([SESSION, HOUR])
    await settled()
    assert [task.done() for task in tasks] == [True, False, False]
    lines.leave(places[0])
    await settled()
    assert [task.done() for task in tasks] == [True, True, False]
    tasks[2].cancel()


async def test_who_is_first_keeps_its_place_when_it_must_wait_on() -> None:
    lines = BudgetLines()
    first, second = lines.join("hour"), lines.join("hour")
    assert lines.join("hour", first) is first
    lines.freed([HOUR])  # while it tries: not to be missed
    await waiting(lines, first)
    behind = waiting(lines, second)
    await settled()
    assert not behind.done()
    behind.cancel()


async def test_one_that_goes_over_to_another_line_leaves_the_first() -> None:
    lines = BudgetLines()
    first, second = lines.join("hour"), lines.join("hour")
    behind = waiting(lines, second)
    await settled()
    elsewhere = lines.join("session:a", first)
    await behind
    assert lines.before([SESSION]) == "session:a"
    lines.leave(elsewhere)
    lines.leave(second)
    assert lines.before([SESSION, HOUR]) is None


async def test_one_that_leaves_from_the_middle_calls_nobody_to_no_end() -> None:
    lines = BudgetLines()
    first, middle, last = (lines.join("hour") for _ in range(3))
    behind = waiting(lines, last)
    lines.leave(middle)
    await settled()
    assert not behind.done()
    lines.leave(first)
    await behind


async def test_nobody_waits_for_longer_than_it_wants() -> None:
    lines = BudgetLines()
    lines.join("hour")
    await waiting(lines, lines.join("hour"), 0.0)


async def test_the_first_looks_by_itself_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another process may have brought tokens back."""
    monkeypatch.setattr(budget_lines, "LOOK_SECONDS", 0.01)
    lines = BudgetLines()
    first, second = lines.join("hour"), lines.join("hour")
    behind = waiting(lines, second)
    await waiting(lines, first)
    assert not behind.done()
    behind.cancel()
