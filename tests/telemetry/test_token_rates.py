"""Tokens a second: over the time in which a tier had a call, in the last minute."""

from __future__ import annotations

import pytest

from mlx_stack_proxy.telemetry.token_rates import MOST_CALLS, TokenRates, Writing

NOW = 1000.0


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
        ([], [("fast", 50, 995.0), ("standard", 9, 999.0)], {"fast": 10.0, "standard": 9.0}),
        ([(100, 990.0, NOW)], [("fast", 50, 995.0)], {"fast": 15.0}),
        ([], [("fast", 0, NOW)], {"fast": 0.0}),
    ],
)
def test_rates(
    calls: list[tuple[int, float, float]], running: list[Writing], expected: dict[str, float]
) -> None:
    rates = TokenRates()
    for tokens, began, end in sorted(calls, key=lambda call: call[2]):
        rates.ended("fast", tokens, began, end)
    assert rates.per_second(NOW, running) == pytest.approx(expected)


def test_it_is_bounded() -> None:
    rates = TokenRates()
    for _ in range(MOST_CALLS + 9):
        rates.ended("fast", 10, 999.0, NOW)
    assert rates.per_second(NOW, []) == {"fast": 10.0 * MOST_CALLS}
