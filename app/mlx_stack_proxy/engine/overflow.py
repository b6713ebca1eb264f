"""Finds what did not fit a tier's context window: the prompt, or prompt and output together.

Many servers refuse a request whose prompt and ``max_tokens`` together exceed the window, although
the prompt alone fits. The numbers in their errors show which it is, with the help of our estimate.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence

from msgspec.structs import replace

from ..wire.prompt_size import BYTES_PER_OUTPUT_TOKEN, TOKENS_OF_TEMPLATE
from ..wire.reply import Reply
from ..wire.usage import output_limit
from .request import Request, UpstreamRequest
from .spent import MIN_ROOM, cautious_estimate
from .verdicts import Failure

_READ = 4_000  # characters of an error that are searched
_NUMBER = re.compile(r"(?<![\d.])\d{1,8}(?![\d.]\d)")
_SUMMED = 32  # numbers that are added in pairs
_COMMA = re.compile(r"(?<=\d),(?=\d{3})")


def measured(failure: Failure, sent: UpstreamRequest, request: Request, reply: Reply) -> Failure:
    """Return the failure with its ``room``, or as an overflow if the window was full.

    ``reply``: the part received before the failure.
    """
    window = min(sent.window, sent.learned_window)
    if failure.kind == "context_overflow":
        output = output_limit(sent.body) or 0
        room = _room(failure, request.prompt_tokens, output, failure.window or window)
        return replace(failure, room=room)
    blamed = failure.kind == "refused" and failure.fault != "ours"
    clear = blamed or failure.lacks or failure.final or failure.status is None
    if clear or failure.reason != "server_error":
        return failure
    # The prompt by the server's count, else by our estimate.
    counted = reply.usage.prompt_tokens if reply.usage is not None else 0
    written = reply.written() // BYTES_PER_OUTPUT_TOKEN
    if max(counted, request.prompt_tokens) + written >= window:
        message = f"the context window is full: {failure.message}"
        return replace(failure, kind="context_overflow", message=message, inferred=True)
    return failure


def _room(failure: Failure, estimate: int, output: int, window: int) -> int:
    """Return the output tokens that fit; 0: the prompt is too long, or the output is unknown."""
    if not output:
        return 0
    numbers = _numbers_in(failure)
    names_output = numbers.count(output) > (output == failure.window)
    prompts = prompts_in(failure, estimate, output) if names_output else []
    # Some servers stop counting at the window: such a number is only a lower bound.
    exact = [prompt for prompt in prompts if prompt + output != window + 1]
    if exact:
        return _if_useful(window - max(exact), output)
    if prompts:
        return _if_useful(min(window - estimate, output // 2), output)
    totals = _totals_in(failure)
    too_many = any(number > window for number in numbers if number not in (output, *totals))
    left = window - cautious_estimate(estimate)
    if failure.window is None or too_many or (left < estimate and not totals):
        return 0  # no evidence that the prompt alone fits
    if totals:
        return _if_useful(min(window - max(totals.values()), output // 2), output)
    return _if_useful(left, output)


def _if_useful(room: int, output: int) -> int:
    return room if min(MIN_ROOM, output // 2) <= room < output else 0


def prompts_in(failure: Failure, estimate: int, output: int) -> list[int]:
    """Return the numbers in an error that can be the prompt's tokens.

    A number counts if its sum with the requested ``output`` tokens is in the error, too, and
    exceeds the window. Without such a sum, a number near our estimate counts if the error also has
    the output, or a total that is their sum.
    """
    window = failure.window or 0
    numbers = [number for number in _numbers_in(failure) if number != failure.window]
    sums = [n for n in numbers if n + output in numbers and n + output > window]
    if sums:
        return sums
    near = range(estimate // 2, 2 * estimate + TOKENS_OF_TEMPLATE + 1)
    sums = [n - output for n in numbers if n > window and n - output in near]
    if not sums and output in (*numbers, failure.window):
        sums = [n for n in numbers if n in near and n != output]
    return sums


def _totals_in(failure: Failure) -> dict[int, int]:
    """Return numbers above the window that are the sum of two below it, each with the larger one.

    Such a total is the prompt plus an output, whoever chose that output.
    """
    window, numbers = failure.window or 0, _numbers_in(failure)[:_SUMMED]
    parts = [number for number in numbers if number < window]
    sums = {a + b: max(a, b) for a, b in itertools.combinations(parts, 2)}
    return {number: sums[number] for number in numbers if number > window and number in sums}


def _numbers_in(failure: Failure) -> Sequence[int]:
    """Return the whole numbers in an error's text, in order."""
    text = failure.body[:_READ].decode("utf-8", "replace") or failure.message
    return [int(number) for number in _NUMBER.findall(_COMMA.sub("", text))]
