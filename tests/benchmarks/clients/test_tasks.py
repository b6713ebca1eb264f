"""The tasks of `make bench-clients`: each can fail, and can be done."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.clients import tasks
from benchmarks.clients.tasks import TASKS, Task


def test_there_are_twenty_of_different_names() -> None:
    assert len({task.name for task in TASKS}) == 20


@pytest.mark.parametrize("task", TASKS, ids=lambda task: task.name)
def test_the_wrong_line_is_there_once_so_that_it_can_be_named(task: Task) -> None:
    assert task.program.count(task.right) == task.faulty.count(task.wrong) == 1


@pytest.mark.parametrize("task", TASKS, ids=lambda task: task.name)
async def test_the_test_tells_of_the_wrong_line_and_passes_once_it_is_mended(
    task: Task, tmp_path: Path
) -> None:
    (tmp_path / task.test_file).write_text(task.test)
    for program, says, is_done in (
        (task.faulty, task.fails, False),
        (task.program, task.passes, True),
    ):
        (tmp_path / task.file).write_text(program)
        assert (await asyncio.to_thread(_ran, task, tmp_path)).strip() == says
        assert await tasks.done(task, tmp_path) is is_done


def _ran(task: Task, folder: Path) -> str:
    command = [sys.executable, "-B", task.test_file]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True).stdout


async def test_a_task_without_its_test_is_not_done(tmp_path: Path) -> None:
    (tmp_path / TASKS[0].file).write_text(TASKS[0].program)
    assert not await tasks.done(TASKS[0], tmp_path)
