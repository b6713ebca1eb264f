"""How many tokens upstreams have counted for prompts of a size, so that enough is set aside.

An estimate from a prompt's bytes is right for prose and code, and two to three times too low for
digits, hex or base64; a short prompt may cost ten times its bytes by its model's template. So
the most that a tier has lately counted for a size is what a prompt of that size is taken for; of
a size that was not seen yet, each byte is taken for a token, which hardly any prompt exceeds.

Pure; times are seconds of one clock, passed in.
"""

from __future__ import annotations

from math import ceil
from typing import Final

# What was counted is remembered for this long to twice as long: other models and other work come.
SECONDS: Final = 1800.0
# Prompts of one size class differ by up to a factor of two in size, and somewhat in their content.
SPARE: Final = 1.1


class PromptRates:
    """Of all tiers. A ``size`` is what ``prompt_size.prompt_bound()`` gives."""

    def __init__(self) -> None:
        # By tier and size class (powers of two): the period, the highest rate within it, and
        # within the one before.
        self._rates: dict[tuple[str, int], tuple[int, float, float]] = {}

    def take(self, tier: str, size: int, tokens: int, now: float) -> None:
        """Upstream has counted a prompt."""
        if size <= 0 or tokens <= 0:
            return
        key = (tier, size.bit_length())
        period = int(now // SECONDS)
        newest, before = self._of(key, period)
        self._rates[key] = (period, max(newest, tokens / size), before)

    def most(self, tier: str, size: int, now: float) -> int:
        """The tokens that a prompt of this size is to be taken for."""
        period = int(now // SECONDS)
        own = size.bit_length()
        # Transcripts grow: what is about to enter a class has just left the one below.
        for size_class in (own, own - 1):
            if rate := max(self._of((tier, size_class), period)):
                return ceil(size * rate * SPARE)
        return size

    def _of(self, key: tuple[str, int], period: int) -> tuple[float, float]:
        """The highest rates of a period and of the one before; 0.0: none."""
        known, newest, before = self._rates.get(key, (period, 0.0, 0.0))
        if known == period:
            return newest, before
        # A clock that was set back is a period like the next one.
        return 0.0, newest if abs(period - known) == 1 else 0.0
