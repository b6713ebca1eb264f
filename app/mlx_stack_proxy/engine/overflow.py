"""Tells what did not fit into a tier's context window: the prompt, or prompt and output together.

Many servers refuse a request whose prompt and ``max_tokens`` together exceed the window, although
the prompt alone fits. The numbers in their errors say so, along with our estimate.
"""

from __future__ import annotations

from dataclasses import replace

from ..wire.prompt_size import BYTES_PER_OUTPUT_TOKEN
from ..wire.reply import Reply
from ..wire.usage import output_limit
from .error_numbers import numbers_in, prompts_in, totals_in
from .request import Request, UpstreamRequest
from .spent import MIN_ROOM, careful
from .verdicts import Failure


def measured(failure: Failure, sent: UpstreamRequest, request: Request, reply: Reply) -> Failure:
    """Return the failure with its ``room``, or as an overflow if the window was full.

    ``reply``: what came of it before the failure.
    """
    window = min(sent.window, sent.learned_window)
    if failure.kind == "context_overflow":
        output = output_limit(sent.body) or 0
        room = _room(failure, request.prompt_tokens, output, failure.window or window)
        return replace(failure, room=room)
    if _may_be_overflow(failure) and _tokens(request, reply) >= window:
        message = f"the context window is full: {failure.message}"
        return replace(failure, kind="context_overflow", message=message, inferred=True)
    return failure


def _room(failure: Failure, estimate: int, output: int, window: int) -> int:
    """Return the tokens of output that fit; 0: the prompt is too long, or the output unknown."""
    if not output:
        return 0
    numbers = numbers_in(failure)
    names_output = numbers.count(output) > (output == failure.window)
    prompts = prompts_in(failure, estimate, output) if names_output else []
    # Some servers stop counting at the window: such a number is only the least that it can be.
    exact = [prompt for prompt in prompts if prompt + output != window + 1]
    if exact:
        return _if_enough(window - max(exact), output)
    if prompts:
        return _if_enough(min(window - estimate, output // 2), output)
    totals = totals_in(failure)
    too_many = any(number > window for number in numbers if number not in (output, *totals))
    left = window - careful(estimate)
    if failure.window is None or too_many or (left < estimate and not totals):
        return 0  # nothing says that the prompt alone fits
    if totals:
        return _if_enough(min(window - max(totals.values()), output // 2), output)
    return _if_enough(left, output)


def _if_enough(room: int, output: int) -> int:
    return room if min(MIN_ROOM, output // 2) <= room < output else 0


def _may_be_overflow(failure: Failure) -> bool:
    blamed = failure.kind == "refused" and failure.fault != "ours"
    if blamed or failure.lacks or failure.final or failure.status is None:
        return False
    return failure.reason == "server_error"


def _tokens(request: Request, reply: Reply) -> int:
    """Return the tokens of prompt and reply, by the server's count or else by our estimate."""
    counted = reply.usage.prompt_tokens if reply.usage is not None else 0
    return max(counted, request.prompt_tokens) + reply.written() // BYTES_PER_OUTPUT_TOKEN
