"""The limit that is sent upstream: by whom it is set, and what lowers it."""

from __future__ import annotations

from typing import Any

import pytest

from mlx_stack_proxy.engine.build_request import build
from mlx_stack_proxy.engine.exchange import Exchange
from mlx_stack_proxy.engine.request import UpstreamRequest
from mlx_stack_proxy.engine.spent import MIN_ROOM
from mlx_stack_proxy.engine.tier_view import TierView
from mlx_stack_proxy.engine.verdicts import truncated
from mlx_stack_proxy.settings_source import from_mapping
from mlx_stack_proxy.token_budget.stage import TokenBudget
from mlx_stack_proxy.wire.delta import Usage
from mlx_stack_proxy.wire.prompt_size import estimate_prompt_tokens
from mlx_stack_proxy.wire.reply import Reply
from tests.engine.exchanges import client_request, exchange

Json = dict[str, Any]


def tool(*parameters: str) -> Json:
    properties = {name: {"type": "string"} for name in parameters}
    function = {"name": "f", "parameters": {"type": "object", "properties": properties}}
    return {"type": "function", "function": function}


CALLS = [tool("city"), tool("path", "content")]


def stage(tiers: Json | None = None, most: int = 1000) -> TokenBudget:
    budget = {"max_output_tokens": most, "tool_calls": {"default_max_tokens": 200}}
    given = {"tiers": tiers or {"fast": {}}, "reliability": {"token_budget": budget}}
    return TokenBudget(from_mapping(given))


def sent(budget: TokenBudget, whole: Exchange) -> Json:
    request = UpstreamRequest("fast", dict(whole.request.body))
    budget.open(whole).on_request(request)
    return request.body


def judged(budget: TokenBudget, reply: Reply, tier: str = "fast", **body: Any) -> Any:
    """What the stage says of a reply to this request."""
    whole = exchange(client_request(**body), tiers=(tier,))
    state = budget.open(whole)
    state.on_request(UpstreamRequest(tier, dict(whole.request.body)))
    return state.judge(reply)


@pytest.mark.parametrize(
    ("asked", "limit"), [(None, 1000), (1, 1), (999, 999), (1000, 1000), (5000, 1000)]
)
@pytest.mark.parametrize("tools", [None, [], CALLS], ids=str)
def test_the_smaller_one_with_and_without_tools(tools: Any, asked: int | None, limit: int) -> None:
    """A limit for calls would cut one in the midst: an agent that has only `bash` writes files."""
    whole = exchange(client_request(max_tokens=asked, tools=tools))
    assert sent(stage(), whole)["max_tokens"] == limit


# Where it is written


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ({}, {"max_tokens": 1000}),
        ({"max_tokens": None}, {"max_tokens": 1000}),
        ({"max_tokens": 5000}, {"max_tokens": 1000}),
        ({"max_completion_tokens": 5000}, {"max_completion_tokens": 1000}),
        (
            {"max_tokens": 7, "max_completion_tokens": 9},
            {"max_tokens": 7, "max_completion_tokens": 7},
        ),
        (
            {"max_tokens": 5000, "max_completion_tokens": 6000},
            {"max_tokens": 1000, "max_completion_tokens": 1000},
        ),
        (
            {"max_tokens": None, "max_completion_tokens": 9},
            {"max_tokens": None, "max_completion_tokens": 9},
        ),
    ],
)
def test_in_the_clients_own_spelling(body: Json, expected: Json) -> None:
    found = sent(stage(), exchange(client_request(**body)))
    assert {key: value for key, value in found.items() if key != "messages"} == expected


# The window

WINDOW = {"fast": {"context_window": 2000}}


@pytest.mark.parametrize(
    ("size", "limit", "ours"),
    [
        (100, 1000, 1000),  # the bytes alone say that there is room
        (3500 // 2, 1000, 1000),
        (3500, 996, 498),  # 1,000 tokens and the message's marks
        (3500 * 2 - 3500 // 2, 496, MIN_ROOM),
        (6_900, MIN_ROOM, MIN_ROOM),
        (99_000, MIN_ROOM, MIN_ROOM),  # full: a little is asked for all the same
    ],
)
def test_less_where_the_window_needs_it(size: int, limit: int, ours: int) -> None:
    """A limit of ours leaves room for the estimate's error, too: up to half of what is left."""
    messages = [{"role": "user", "content": "x" * size}]
    for asked, expected in (({"max_tokens": 1000}, limit), ({}, ours)):
        whole = exchange(client_request(size=size + 50, messages=messages, **asked))
        body = sent(stage(tiers=WINDOW), whole)
        assert body == {"messages": messages, "max_tokens": expected}
    room = 2000 - estimate_prompt_tokens(whole.request.body)
    assert limit == min(1000, max(room, MIN_ROOM))


def test_dense_text_leaves_room_for_its_limit() -> None:
    """Where a token has 2.9 bytes, a prompt that we take for 24,800 tokens has 30,000."""
    tiers = {"fast": {"context_window": 40_000}}
    messages = [{"role": "user", "content": "x" * 87_000}]
    whole = exchange(client_request(size=87_050, messages=messages))
    assert 30_000 + sent(stage(tiers=tiers, most=16_384), whole)["max_tokens"] <= 40_000


def test_a_learnt_window_counts() -> None:
    whole = exchange(client_request(size=2000))
    body = build(whole, from_mapping({}), TierView(windows={"fast": 4096})).body
    assert 2000 < body["max_tokens"] < 4096
    request = UpstreamRequest("fast", dict(whole.request.body), learned_window=900)
    stage().open(whole).on_request(request)
    assert MIN_ROOM < request.body["max_tokens"] < 900


# A reply that was cut


def cut_reply(reason: str, text: str = "Here is") -> Reply:
    reply = Reply()
    reply.choice(0).text = text
    reply.choice(0).finish_reason = reason
    return reply


@pytest.mark.parametrize("body", [{"tools": CALLS}, {"tools": CALLS, "max_tokens": 300}, {}])
@pytest.mark.parametrize("reason", ["length", "tool_calls", "stop"])
def test_a_reply_that_was_cut_is_delivered(body: Json, reason: str) -> None:
    assert judged(stage(), cut_reply(reason), **body) is None


def test_nothing_but_a_cut_is_a_failure_where_a_call_may_have_been_begun() -> None:
    """mlx_lm.server says nothing of a call that has no end, until the limit ends it."""
    nothing = cut_reply("length", text="")
    assert judged(stage(), nothing, tools=CALLS, max_tokens=300) == truncated("unseen")
    assert judged(stage(), nothing, tools=CALLS) == truncated("unseen")
    assert judged(stage(), nothing, max_tokens=300) is None
    thought = cut_reply("length", text="")
    thought.choice(0).thought.add("Let me see")
    assert judged(stage(), thought, tools=CALLS, max_tokens=300) is None


def test_next_to_nothing_is_nothing() -> None:
    """Three bytes can't be most of 300 tokens; with a cloud's model the rest may be thoughts."""

    def unseen(usage: Usage, text: str, tier: str = "fast", **body: Any) -> bool:
        budget = stage(tiers={"fast": {"model": "f"}, "far": {"model": "p", "local": False}})
        reply = cut_reply("length", text=text)
        reply.usage = usage
        asked = {"tools": CALLS, "max_tokens": 300, **body}
        return judged(budget, reply, tier, **asked) == truncated("unseen")

    usage = Usage(20, 300)
    assert unseen(usage, '"}}\n')
    assert not unseen(usage, "x" * 75)
    assert not unseen(usage, '"}}\n', tools=[])
    assert not unseen(usage, '"}}\n', tier="far")
    assert not unseen(Usage(20, 300, counted_by_litellm=True), '"}}\n')


def test_a_small_window_does_not_raise_a_small_limit() -> None:
    messages = [{"role": "user", "content": "x" * 9000}]
    whole = exchange(client_request(size=9050, messages=messages, max_tokens=5))
    assert sent(stage(tiers=WINDOW), whole)["max_tokens"] == 5


def test_a_limit_is_sent_without_the_stage_too() -> None:
    """mlx-lm's own limit is 512 tokens."""
    body = build(exchange(client_request()), from_mapping({})).body
    assert body["max_tokens"] == 16_384
    body = build(exchange(client_request(max_completion_tokens=7)), from_mapping({})).body
    assert (body.get("max_tokens"), body["max_completion_tokens"]) == (None, 7)
