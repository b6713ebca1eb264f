"""A server that reads only a part of its prompts, and what only looks like one."""

from __future__ import annotations

from typing import Any

import pytest

from mlx_stack_proxy.engine.request import Request
from mlx_stack_proxy.engine.verdicts import Failure
from mlx_stack_proxy.escalation.cut_prompts import CutPrompts
from mlx_stack_proxy.escalation.stage import Escalation
from mlx_stack_proxy.settings_source import from_mapping
from mlx_stack_proxy.wire.delta import Usage
from mlx_stack_proxy.wire.reply import Reply
from tests.engine.exchanges import client_request, exchange

NUM_CTX = 2048


def asking(tokens: int, last: int = 10) -> Request:
    """A prompt of so many tokens by our estimate, the last message with so many of them."""
    messages = [
        {"role": "system", "content": "x" * int((tokens - last) * 3.5)},
        {"role": "assistant", "content": "Yes?"},
        {"role": "user", "content": "y" * int(last * 3.5)},
    ]
    return client_request(size=tokens * 4, messages=messages)


def recorded(*replies: tuple[Request, Usage | None]) -> list[int]:
    tiers = CutPrompts()
    return [tiers.record("fast", request, usage) for request, usage in replies]


LONG, LONGER, WHOLE = asking(18_000), asking(19_000), asking(2_000)


def test_two_replies_in_a_row_that_say_the_same() -> None:
    said = [(LONG, Usage(NUM_CTX + 3, 9)), (WHOLE, Usage(1900, 9)), (LONGER, Usage(NUM_CTX, 9))]
    assert recorded(*said) == [0, 0, NUM_CTX]


@pytest.mark.parametrize(
    "replies",
    [
        [(LONG, Usage(6_100, 9)), (LONGER, Usage(6_400, 9))],  # blanks: many bytes a token
        [(LONG, Usage(1_000, 9)), (LONGER, Usage(1_000, 9))],  # no server's window is so small
        [(LONG, Usage(2_048, 9)), (LONGER, Usage(2_900, 9))],  # what is new, of different length
        [(asking(18_000, 2_000), Usage(2_048, 9))] * 2,  # what is new
        [(LONG, Usage(2_048, 9, cached_tokens=16_000))] * 2,
        [(LONG, Usage(2_048, 9)), (LONGER, Usage(18_700, 9)), (LONG, Usage(2_048, 9))],
        [(LONG, Usage(2_048, 9, counted_by_litellm=True))] * 2,
        [(LONG, None)] * 2,
    ],
)
def test_what_only_looks_so(replies: Any) -> None:
    assert not any(recorded(*replies))


def judged(stage: Escalation, flowed: int) -> tuple[Any, list[str]]:
    reply = Reply()
    reply.choice(0).text = "Hello."
    reply.choice(0).finish_reason = "stop"
    reply.usage, reply.flowed = Usage(NUM_CTX, 9), flowed
    state = stage.open(exchange(LONG))
    return state.judge(reply), [incident.kind for incident in state.remarks.incidents]


def test_it_is_an_overflow_unless_text_is_out() -> None:
    stage = Escalation(from_mapping({}))
    assert judged(stage, 0) == (None, [])
    assert judged(stage, 6) == (None, ["prompt_cut"])
    verdict, kinds = judged(stage, 0)
    assert isinstance(verdict, Failure) and kinds == ["prompt_cut"]
    assert (verdict.reason, verdict.window) == ("context_overflow", NUM_CTX)
