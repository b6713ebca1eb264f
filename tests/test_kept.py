"""What stays in memory is no larger than it looks."""

from __future__ import annotations

import gc

import psutil

from mlx_stack_proxy.loop_detection.history import encoded
from mlx_stack_proxy.loop_detection.turn import Inputs, Turn

COUNT = 20_000
MOST = 1_000  # bytes of one, which has some 100


def test_a_stored_turn_takes_what_it_is_long() -> None:
    turn = Turn(Inputs(digest=2**63), action=2**62)
    process = psutil.Process()
    gc.collect()
    before = process.memory_info().rss
    window = [encoded(turn) for _ in range(COUNT)]
    assert process.memory_info().rss - before < COUNT * MOST
    assert len(window[0]) < MOST
