"""Finds tokens of prompts in the errors of an overflow."""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence

from ..wire.prompt_size import TOKENS_OF_TEMPLATE
from .verdicts import Failure

_READ = 4_000  # characters of an error that are searched
_NUMBER = re.compile(r"(?<![\d.])\d{1,8}(?![\d.]\d)")
_SUMMED = 32  # numbers of which two are added
_COMMA = re.compile(r"(?<=\d),(?=\d{3})")


def prompts_in(failure: Failure, estimate: int, output: int) -> list[int]:
    """Return the numbers of an error that can be the prompt's tokens.

    A number counts if its sum with the output that was asked for (``output``, in tokens) is there,
    too, and exceeds the window. Where no such sum is, a number near our estimate counts if it
    stands with the output, or if it is what the output leaves of a total.
    """
    window = failure.window or 0
    numbers = [number for number in numbers_in(failure) if number != failure.window]
    sums = [n for n in numbers if n + output in numbers and n + output > window]
    if sums:
        return sums
    near = range(estimate // 2, 2 * estimate + TOKENS_OF_TEMPLATE + 1)
    sums = [n - output for n in numbers if n > window and n - output in near]
    if not sums and output in (*numbers, failure.window):
        sums = [n for n in numbers if n in near and n != output]
    return sums


def totals_in(failure: Failure) -> dict[int, int]:
    """Return the numbers above the window that are the sum of two below it, each with the larger.

    What exceeds the window is then the prompt and an output together, whoever chose that output.
    """
    window, numbers = failure.window or 0, numbers_in(failure)[:_SUMMED]
    parts = [number for number in numbers if number < window]
    sums = {a + b: max(a, b) for a, b in itertools.combinations(parts, 2)}
    return {number: sums[number] for number in numbers if number > window and number in sums}


def numbers_in(failure: Failure) -> Sequence[int]:
    """Return the whole numbers in an error's text, in its order."""
    text = failure.body[:_READ].decode("utf-8", "replace") or failure.message
    return [int(number) for number in _NUMBER.findall(_COMMA.sub("", text))]
