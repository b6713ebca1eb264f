"""What errors and replies teach about a tier's window and abilities, and how long it counts."""

from __future__ import annotations

from typing import Any, Literal

import pytest

from mlx_stack_proxy.engine.request import Request
from mlx_stack_proxy.engine.verdicts import Failure
from mlx_stack_proxy.escalation.cut_prompts import CutPrompts
from mlx_stack_proxy.escalation.learned import FORGET_SECONDS, LearnedLimits
from mlx_stack_proxy.escalation.stage import Escalation
from mlx_stack_proxy.settings_source import from_mapping
from mlx_stack_proxy.wire.delta import Usage
from mlx_stack_proxy.wire.prompt_size import estimate_prompt_tokens
from mlx_stack_proxy.wire.reply import Reply
from tests.engine.exchanges import client_request, exchange

REQUEST = client_request(messages=[{"role": "user", "content": "The quokka sat. " * 500}])
SHORT = client_request()
SAYS = client_request(
    messages=[{"role": "user", "content": "Maximum context length is 1,500! " * 500}],
    max_tokens=2000,
)
TOKENS = estimate_prompt_tokens(REQUEST.body)


def overflow(
    window: int | None, in_field: Literal["window", "overflow", ""] = "", body: bytes = b""
) -> Failure:
    return Failure(
        "context_overflow", "too long", status=400, body=body, window=window, in_field=in_field
    )


def lacking(ability: str, status: int) -> Failure:
    return Failure("server_error", "no", status=status, lacks=ability)


@pytest.mark.parametrize(
    ("windows", "expected"),
    [([1500], 1500), ([2000, 1500], 1500), ([1500, 2000], 1500)],
)
def test_a_window(windows: list[int | None], expected: int) -> None:
    learnt = LearnedLimits()
    for window in windows:
        learnt.take("fast", overflow(window), REQUEST, 100.0)
    assert learnt.windows(100.0) == {"fast": expected}


SAID = b"maximum context length is 8192 tokens. However, you requested 10200 tokens"


@pytest.mark.parametrize(
    ("failure", "request_", "output", "expected"),
    [
        # A number in words counts if it fits the request.
        (overflow(1024), REQUEST, 0, 1024),
        (overflow(1023), REQUEST, 0, None),
        (overflow(100), REQUEST, 0, None),
        (overflow(2 * TOKENS), REQUEST, 0, 2 * TOKENS),
        (overflow(2 * TOKENS + 1), REQUEST, 0, None),
        (overflow(1024), SHORT, 0, None),
        (overflow(1024), SHORT, 8192, None),
        # … or what the error says was asked for: the prompt and its reply.
        (overflow(8192, body=SAID), REQUEST, 8192, 8192),
        (overflow(8192, body=SAID), REQUEST, 100_000, None),
        (overflow(8192, body=SAID), SHORT, 8192, None),
        # … and if it is no number that the client wrote, of which the error may only quote it.
        (overflow(1500), SAYS, 0, None),
        (overflow(1500, "overflow"), SAYS, 0, None),
        (overflow(1501), SAYS, 0, 1501),
        (overflow(2000), SAYS, 0, 2000),
        # A field of the error is the server's own.
        (overflow(100, "window"), SHORT, 0, 100),
        (overflow(1500, "window"), SAYS, 0, 1500),
        (overflow(None, "overflow"), REQUEST, 0, TOKENS - 1),
        (overflow(None, "overflow"), SHORT, 0, None),
        (overflow(100, "overflow"), REQUEST, 0, None),
        (overflow(None), REQUEST, 0, None),
    ],
)
def test_no_clients_words_close_a_tier_to_others(
    failure: Failure, request_: Request, output: int, expected: int | None
) -> None:
    learnt = LearnedLimits()
    learnt.take("fast", failure, request_, 100.0, output)
    assert learnt.windows(100.0) == ({} if expected is None else {"fast": expected})


@pytest.mark.parametrize(
    ("status", "counts"),
    [(400, True), (422, True), (501, True), (500, False), (503, False), (200, False)],
)
def test_an_ability_it_lacks(status: int, counts: bool) -> None:
    learnt = LearnedLimits()
    learnt.take("fast", lacking("tools", status), REQUEST, 100.0)
    assert learnt.lacks(100.0) == ({"fast": frozenset({"tools"})} if counts else {})


def test_several() -> None:
    learnt = LearnedLimits()
    for tier, ability in (("fast", "tools"), ("fast", "images"), ("standard", "tools")):
        learnt.take(tier, lacking(ability, 400), REQUEST, 100.0)
    found = learnt.lacks(100.0)
    assert found == {"fast": frozenset({"tools", "images"}), "standard": frozenset({"tools"})}


def test_it_is_forgotten() -> None:
    learnt = LearnedLimits()
    learnt.take("fast", overflow(1500), REQUEST, 100.0)
    learnt.take("fast", lacking("tools", 400), REQUEST, 100.0)
    learnt.take("standard", lacking("tools", 400), REQUEST, 101.0)
    now = 100.0 + FORGET_SECONDS
    assert learnt.windows(now) == {}
    assert learnt.lacks(now) == {"standard": frozenset({"tools"})}
    learnt.take("fast", overflow(2000), REQUEST, now)
    assert learnt.windows(now) == {"fast": 2000}, "what was forgotten bounds nothing"


def test_it_is_forgotten_where_the_clock_is_put_back() -> None:
    learnt = LearnedLimits()
    learnt.take("fast", overflow(1500), REQUEST, 1_000_000.0)
    learnt.take("fast", lacking("tools", 400), REQUEST, 1_000_000.0)
    assert learnt.windows(1_000_000.0) and learnt.lacks(1_000_000.0)
    assert (learnt.windows(996_400.0), learnt.lacks(996_400.0)) == ({}, {})


def test_other_failures_teach_nothing() -> None:
    learnt = LearnedLimits()
    learnt.take("fast", Failure("server_error", "status 500", status=500), REQUEST, 1.0)
    learnt.take("fast", Failure("timeout", "nothing came"), REQUEST, 1.0)
    assert learnt.windows(1.0) == {} and learnt.lacks(1.0) == {}


# A server that reads only a part of its prompts, and what only looks like one

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
