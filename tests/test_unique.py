"""Ids that nobody else has."""

from __future__ import annotations

import multiprocessing
from typing import Any

import pytest

from mlx_stack_proxy.unique import unique


def test_as_many_bits_as_asked_for() -> None:
    found = {unique(64) for _ in range(10_000)}
    assert len(found) == 10_000
    assert {len(one) for one in found} == {16}


def _tell(queue: multiprocessing.Queue[str]) -> None:
    queue.put(unique(96))


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_processes_have_none_in_common(method: str) -> None:
    context: Any = multiprocessing.get_context(method)
    queue = context.Queue()
    processes = [context.Process(target=_tell, args=(queue,)) for _ in range(3)]
    for process in processes:
        process.start()
    found = {queue.get(timeout=30) for _ in processes} | {unique(96)}
    for process in processes:
        process.join(30)
    assert len(found) == 4
