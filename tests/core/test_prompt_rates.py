"""What prompts of a size are taken for: by what upstream has counted, and before that too much."""

from __future__ import annotations

import pytest

from app.core.prompt_rates import SECONDS, SPARE, PromptRates

NOW = 1_780_000_000.0 // SECONDS * SECONDS


def test_before_anything_is_known_each_byte_is_a_token() -> None:
    assert PromptRates().most("fast", 5000, NOW) == 5000


@pytest.mark.parametrize("tokens", [900, 3000, 9000])
def test_what_was_counted_counts_for_prompts_of_like_size(tokens: int) -> None:
    rates = PromptRates()
    rates.take("fast", 3000, tokens, NOW)
    assert rates.most("fast", 3000, NOW) == pytest.approx(tokens * SPARE, abs=1)
    assert rates.most("fast", 2100, NOW) == pytest.approx(0.7 * tokens * SPARE, abs=1)
    # What grows has just left the size below; what is far from it is not known.
    assert rates.most("fast", 6000, NOW) == pytest.approx(2 * tokens * SPARE, abs=1)
    assert rates.most("fast", 20_000, NOW) == 20_000
    assert rates.most("fast", 300, NOW) == 300
    assert rates.most("standard", 3000, NOW) == 3000


def test_the_highest_of_them_counts() -> None:
    rates = PromptRates()
    for tokens in (900, 2000, 700):
        rates.take("fast", 3000, tokens, NOW)
    assert rates.most("fast", 3000, NOW) == pytest.approx(2000 * SPARE, abs=1)


def test_what_is_long_ago_is_forgotten() -> None:
    rates = PromptRates()
    rates.take("fast", 3000, 2000, NOW)
    rates.take("fast", 3000, 900, NOW + SECONDS)
    assert rates.most("fast", 3000, NOW + SECONDS) == pytest.approx(2000 * SPARE, abs=1)
    assert rates.most("fast", 3000, NOW + 2 * SECONDS) == pytest.approx(900 * SPARE, abs=1)
    assert rates.most("fast", 3000, NOW + 3 * SECONDS) == 3000


def test_a_clock_that_is_set_back_forgets_nothing_at_once() -> None:
    rates = PromptRates()
    rates.take("fast", 3000, 2000, NOW)
    assert rates.most("fast", 3000, NOW - SECONDS) == pytest.approx(2000 * SPARE, abs=1)
    assert rates.most("fast", 3000, NOW - 10 * SECONDS) == 3000


@pytest.mark.parametrize(("size", "tokens"), [(0, 5), (5, 0), (-1, 5)])
def test_what_says_nothing_teaches_nothing(size: int, tokens: int) -> None:
    rates = PromptRates()
    rates.take("fast", size, tokens, NOW)
    assert rates.most("fast", 5, NOW) == 5
    assert rates.most("fast", 0, NOW) == 0
