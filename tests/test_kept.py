"""What stays in memory is no larger than it looks."""

from __future__ import annotations

import gc

import orjson
import psutil

from mlx_stack_proxy.kept import kept

COUNT = 20_000
MOST = 1_000  # bytes of one, which has some 100


def test_it_takes_what_it_is_long() -> None:
    process = psutil.Process()
    gc.collect()
    before = process.memory_info().rss
    all_of_it = [kept(orjson.dumps(["x" * 80, number])) for number in range(COUNT)]
    assert process.memory_info().rss - before < COUNT * MOST
    assert len(all_of_it[0]) < MOST
