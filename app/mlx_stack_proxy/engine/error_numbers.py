"""Finds tokens of prompts in the errors of an overflow."""

from __future__ import annotations

import re
from collections.abc import Sequence

from ..wire.prompt_size import TOKENS_OF_TEMPLATE
from .verdicts import UpstreamFailed

_READ = 4_000  # characters of an error that are searched
_NUMBER = re.compile(r"(?<![\d.])\d{1,8}(?![\d.]\d)")
_COMMA = re.compile(r"(?<=\d),(?=\d{3})")


def prompts_in(failure: UpstreamFailed, estimate: int, output: int) -> list[int]:
    """Return the numbers of an error that can be the prompt's tokens.

    A number counts if it is near our estimate and stands beside the output that was asked for
    (``output``, in tokens), or if it is what the output leaves of a total.
    """
    numbers = [number for number in numbers_in(failure) if number != failure.window]
    near = range(estimate // 2, 2 * estimate + TOKENS_OF_TEMPLATE + 1)
    totals = [n - output for n in numbers if n > (failure.window or 0) and n - output in near]
    sums = [n for n in totals if n in numbers] or totals
    if not sums and output in (*numbers, failure.window):
        sums = [n for n in numbers if n in near and n != output]
    return sums


def numbers_in(failure: UpstreamFailed) -> Sequence[int]:
    """Return the whole numbers in an error's text, in its order."""
    text = failure.body[:_READ].decode("utf-8", "replace") or failure.message
    return [int(number) for number in _NUMBER.findall(_COMMA.sub("", text))]
