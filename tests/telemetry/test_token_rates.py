"""Tokens a second: over the time in which a tier had a call, in the last minute."""

from __future__ import annotations

from itertools import pairwise

import pytest

from mlx_stack_proxy.engine.outcome import Figures, Outcome
from mlx_stack_proxy.engine.record import Record, record_of
from mlx_stack_proxy.telemetry.token_rates import Writing, per_second
from tests.engine.exchanges import exchange

NOW = 1000.0


def ended(*calls: tuple[int, float, float]) -> Record:
    """The record of an exchange that called `fast`; tokens, begin and end of each call."""
    one = exchange()
    pauses = [0.0, *(after[1] - before[2] for before, after in pairwise(calls))]
    for (tokens, began, end), pause in zip(calls, pauses, strict=True):
        took = Figures(seconds=end - began, waited=pause, tokens_in=1, tokens_out=tokens)
        one.outcomes.append(Outcome("fast", figures=took))
    return record_of(one, "ok", calls[-1][2], 9.0)


@pytest.mark.parametrize(
    ("calls", "running", "expected"),
    [
        ([], [], {}),
        ([(100, 990.0, NOW)], [], {"fast": 10.0}),
        ([(100, 980.0, 990.0)], [], {"fast": 10.0}),  # since then it was idle
        ([(100, 980.0, 990.0), (300, 990.0, NOW)], [], {"fast": 20.0}),
        ([(100, 990.0, NOW), (100, 990.0, NOW)], [], {"fast": 20.0}),  # side by side
        ([(100, 985.0, 995.0), (100, 990.0, NOW)], [], {"fast": 200 / 15}),
        ([(120, 880.0, NOW)], [], {"fast": 1.0}),  # only half of it was in the minute
        ([(100, 930.0, 939.0)], [], {}),
        ([(0, 990.0, NOW)], [], {"fast": 0.0}),
        ([], [("fast", 50, 5.0), ("standard", 9, 1.0)], {"fast": 10.0, "standard": 9.0}),
        ([(100, 990.0, NOW)], [("fast", 50, 5.0)], {"fast": 15.0}),
        ([], [("fast", 0, 0.0)], {"fast": 0.0}),
    ],
)
def test_rates(
    calls: list[tuple[int, float, float]], running: list[Writing], expected: dict[str, float]
) -> None:
    newest_first = [ended(call) for call in sorted(calls, key=lambda call: -call[2])]
    assert per_second(newest_first, running, NOW) == pytest.approx(expected)


def test_earlier_attempts_of_an_exchange_count_in_their_own_time() -> None:
    record = ended((100, 970.0, 980.0), (300, 990.0, NOW))
    assert per_second([record], [], NOW) == pytest.approx({"fast": 20.0})
    assert per_second([record], [], 1050.0) == pytest.approx({"fast": 30.0})
