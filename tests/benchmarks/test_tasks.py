"""Tasks, and when one is right."""

from __future__ import annotations

from dataclasses import replace

import pytest

from benchmarks.agents import tasks


def played(task: tasks.Task) -> tasks.World:
    world = tasks.world(task)
    for (name, arguments), result in zip(task.calls, task.results, strict=True):
        assert world.call(name, arguments) == result
    return world


def with_last(tool: str) -> tasks.Task:
    return next(task for task in tasks.made(7, 200) if task.calls[-1][0] == tool)


def test_each_task_can_be_done() -> None:
    for task in tasks.made(7, 60):
        assert tasks.shortfall(task, played(task), task.answer) == ""


def test_the_seed_decides_and_more_tasks_change_none() -> None:
    assert tasks.made(7, 12) == tasks.made(7, 30)[:12]
    assert tasks.made(7, 12) != tasks.made(8, 12)
    assert [len(task.calls) for task in tasks.made(7, 12)] == [1, 2, 3, 4, 5, 6] * 2


def test_nothing_done_is_not_right() -> None:
    task = with_last("update_order")
    assert tasks.shortfall(task, tasks.world(task), task.answer) == "state"
    assert tasks.shortfall(task, played(task), "All done.") == "answer"


def test_what_was_not_asked_for_is_not_right() -> None:
    task = with_last("get_weather")
    world = played(task)
    world.call("save_note", {"path": "notes/mine.txt", "text": "hello"})
    assert tasks.shortfall(task, world, task.answer) == "state"


def test_words_around_a_value_that_a_tool_gave() -> None:
    task = next(
        one
        for one in tasks.made(7, 200)
        if any(note["text"] not in one.text for note in one.notes.values())
    )
    world = played(task)
    path, note = next((p, n) for p, n in task.notes.items() if n["text"] not in task.text)
    world.notes[path] = {**note, "text": f"Converted amount: {note['text']}"}
    assert tasks.shortfall(task, world, task.answer) == ""
    world.notes[path] = {**note, "text": "Converted amount: 1 USD"}
    assert tasks.shortfall(task, world, task.answer) == "state"


@pytest.mark.parametrize(
    ("answer", "right"),
    [
        ("That is 1234.5 EUR.", True),
        ("It comes to 1,234.50 eur today", True),
        ("It comes to 11234.5 EUR", False),
        ("That is 1234.5", False),
        ("1234.55 EUR", False),
    ],
)
def test_values_count_however_they_are_put(answer: str, right: bool) -> None:
    task = replace(with_last("get_weather"), facts=["1234.5", "EUR"])
    assert (tasks.shortfall(task, played(task), answer) == "") is right
