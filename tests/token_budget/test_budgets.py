"""Which budgets hold for whom, what is used of them, and what is refused in which words."""

from __future__ import annotations

from typing import Any

import pytest

from mlx_stack_proxy.engine.request import Controls, Route
from mlx_stack_proxy.engine.spent import TokensUsed, tokens_used_by
from mlx_stack_proxy.settings import TokenBudgetSettings
from mlx_stack_proxy.settings_source import from_mapping
from mlx_stack_proxy.state.store import Limit
from mlx_stack_proxy.token_budget import budgets
from mlx_stack_proxy.wire.delta import Usage
from mlx_stack_proxy.wire.prompt_size import TOKENS_OF_TEMPLATE
from mlx_stack_proxy.wire.reply import Reply
from tests.engine.exchanges import client_request, exchange
from tests.support.deltas import text_delta, usage_delta

SMALL = {"per_session": 10, "per_hour": 20, "max_output_tokens": 30}


def rules(**budget: Any) -> TokenBudgetSettings:
    found = from_mapping(
        {
            "tiers": {"fast": {}, "standard": {}},
            "reliability": {"token_budget": budget, "escalation": {"chain": ["fast", "standard"]}},
        }
    )
    return found.reliability.token_budget


def scopes(limits: tuple[Limit, ...]) -> list[tuple[str, int | None, bool]]:
    return [(limit.scope, limit.most, limit.rolling) for limit in limits]


def test_the_session_the_hour_and_the_key() -> None:
    given = rules(per_session=1, per_hour=2, per_key={"sk": SMALL})
    assert scopes(budgets.limits_of("s", "other", given)) == [
        ("session:s", 1, False),
        ("hour", 2, True),
    ]
    assert scopes(budgets.limits_of(None, "other", given)) == [("hour", 2, True)]
    *_, within, hour = budgets.limits_of("s", "sk", given)
    assert (within.most, within.rolling, hour.most, hour.rolling) == (10, False, 20, True)
    assert within.scope == f"session:s:{hour.scope}"
    assert "sk" not in hour.scope.partition(":")[2]
    assert len(budgets.limits_of(None, "sk", given)) == 2
    assert budgets.limits_of("s", "sk", rules(enabled=False)) == ()


def test_a_tiers_own() -> None:
    given = rules(per_tier={"fast": {"per_hour": 5}})
    assert scopes(budgets.tier_limits(exchange(), "fast", given)) == [("tier:fast", 5, True)]
    assert budgets.tier_limits(exchange(), "standard", given) == ()
    off = rules(per_tier={"fast": {"per_hour": 5}}, enabled=False)
    assert budgets.tier_limits(exchange(), "fast", off) == ()


def test_the_smallest_limit_on_a_reply_counts() -> None:
    given = rules(
        max_output_tokens=50,
        per_key={"sk": {"max_output_tokens": 40}},
        per_tier={"fast": {"max_output_tokens": 45}},
    )
    found = [budgets.most_output(*asked, given) for asked in (("", "standard"), ("", "fast"))]
    assert [*found, budgets.most_output("sk", "fast", given)] == [50, 45, 40]


@pytest.mark.parametrize(
    ("body", "most"),
    [
        ({"max_tokens": 100}, 100),
        ({"max_completion_tokens": 100}, 100),
        ({"max_tokens": 100, "n": 3}, 300),
        ({}, 0),
    ],
)
def test_what_a_call_may_use_at_most(body: dict[str, Any], most: int) -> None:
    assert budgets.most_written(body) == most


def test_a_single_reply_may_pass_a_budget_but_several_may_not() -> None:
    assert budgets.least_left({"max_tokens": 100}) == 1
    assert budgets.least_left({"max_tokens": 100, "n": 3}) == 300


# Policies


def spent(used: dict[str, int], *, tier: str | None = None, **budget: Any) -> frozenset[str]:
    given = rules(**budget)
    route = Route(("fast", "standard"), cheaper=("fast",))
    whole = exchange(controls=Controls(tier=tier), route=route)
    return budgets.spent_tiers(whole, used, given)


PER_TIER = {"fast": {"per_hour": 5}}


def test_tiers_whose_budget_is_used_up() -> None:
    hard: Any = {"policy": "hard_stop", "per_tier": PER_TIER}
    assert spent({"tier:fast": 4}, **hard) == frozenset()
    assert spent({"tier:fast": 5}, **hard) == {"fast"}
    assert spent({"hour": 10**9}, **hard) == frozenset()
    assert spent({"tier:fast": 5}, per_tier=PER_TIER) == frozenset()
    assert spent({"tier:fast": 5}, tier="fast", **hard) == {"fast"}


def test_escalate_obeys_a_tier_that_is_named() -> None:
    rules: Any = {"policy": "escalate", "per_tier": PER_TIER}
    assert spent({"tier:fast": 5}, **rules) == {"fast"}
    assert spent({"tier:fast": 5}, tier="fast", **rules) == frozenset()


def test_a_budget_that_is_bypassed_only_counts() -> None:
    whole = exchange(controls=Controls(bypass=frozenset({"budget"})))
    given = rules(policy="hard_stop")
    assert budgets.policy_for(whole, given) == "warn_and_continue"
    assert budgets.limits_for(whole, given) == budgets.limits_for(exchange(), given) != ()
    assert budgets.policy_for(exchange(), given) == "hard_stop"


# What is used


def test_a_threshold_is_crossed_once() -> None:
    ten_more = {Limit("hour", 100, rolling=True): 10}
    crossed = [bool(budgets.crossed(ten_more, {"hour": n}, 0.8)) for n in range(0, 100, 10)]
    assert crossed == [n == 70 for n in range(0, 100, 10)]


def reply(usage: Usage | None, text: str = "") -> Reply:
    found = Reply()
    found.take(text_delta(text))
    if usage is not None:
        found.take(usage_delta(usage))
    return found


def test_usage_is_upstreams_own_or_an_estimate_that_is_never_zero() -> None:
    request = client_request()
    usage = Usage(100, 4, cached_tokens=90)
    assert tokens_used_by(request, reply(usage), count_cached=False) == TokensUsed(10, 4, False)
    assert tokens_used_by(request, reply(usage), count_cached=True) == TokensUsed(100, 4, False)
    guess = tokens_used_by(request, reply(None, "12345678"), count_cached=True)
    assert (guess.output, guess.estimated) == (2, True)
    assert guess.prompt > 0
    assert tokens_used_by(request, reply(Usage(0, 0)), count_cached=True).estimated


# Refusals


def test_when_to_come_again() -> None:
    limit = Limit("hour", 100, rolling=True)
    refused = budgets.refusal(limit, 120, 59.2, waited=False).error
    assert (refused.status, refused.type, refused.retry_after) == (429, "budget_exceeded", 60)
    assert refused.extra == {"scope": "hour", "used": 120, "limit": 100, "retry_after": 60}
    assert refused.message == "the token budget of this hour is used up: 120 of 100"
    assert budgets.refusal(limit, 120, 0.0, waited=False).error.retry_after == 1


def test_a_sessions_refusal_names_the_command_that_resets_it() -> None:
    limit = Limit("session:" + "2405ae7d6c6b" * 5, 100, rolling=False)
    refused = budgets.refusal(limit, 120, 1, waited=False).error
    assert "`mlx-stack-proxy sessions 2405ae7d6c6b --delete`" in refused.message


def test_who_waited_for_others_is_not_told_that_all_is_used() -> None:
    refused = budgets.refusal(Limit("hour", 100, rolling=True), 20, 3000.0, waited=True).error
    assert refused.retry_after == refused.extra["retry_after"] == 5
    assert "used up" not in refused.message
    assert "20 of 100" in refused.message


def said(content: Any, **more: Any) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": content}], **more}


PICTURE = {"type": "image_url", "image_url": {"url": "https://host/a.png"}}


@pytest.mark.parametrize(
    "more",
    [said("ü" * 500), said("", tools=["x" * 1000]), {"prompt": [7] * 500}, {"input": "é" * 500}],
)
def test_a_prompt_costs_at_most_a_token_a_byte(more: Any) -> None:
    assert 1000 + TOKENS_OF_TEMPLATE < budgets.most_read(more) < 1150 + TOKENS_OF_TEMPLATE
    assert budgets.most_read(more, 700) == 700


def test_a_picture_costs_more_than_its_url_and_less_than_its_bytes() -> None:
    source = {"type": "base64", "data": "iVBOR/+" * 9999 + "=="}
    by_result = {"type": "tool_result", "content": [{"type": "image", "source": source}]}
    inline = {"type": "image_url", "image_url": {"url": "data:image/png;base64," + source["data"]}}
    for content in ([PICTURE, PICTURE], [by_result, by_result], [inline, inline]):
        most = budgets.most_read(said(content))
        assert 2 * budgets.MEDIUM < most < 2 * budgets.MEDIUM + TOKENS_OF_TEMPLATE + 300
    assert budgets.most_read(said('"type":"image"')) < budgets.MEDIUM


@pytest.mark.parametrize(
    ("scope", "word"),
    [
        ("hour", "hour"),
        ("session:s", "session"),
        ("session:s:key:k", "key"),
        ("session:s:tier:fast", "tier"),
        ("key:k", "key"),
        ("tier:fast", "tier"),
        ("cloud", "cloud"),
    ],
)
def test_a_word_for_each_scope(scope: str, word: str) -> None:
    assert budgets.scope_name(Limit(scope, 1, rolling=True)) == word


def test_the_most_used_budget() -> None:
    limits = [Limit("hour", 100, rolling=True), Limit("session:s", 10, rolling=False)]
    assert budgets.share_used(limits, {"hour": 50, "session:s": 2}) == 0.5
    assert budgets.share_used(limits, {"session:s": 12}) == 1.2
    assert budgets.share_used([Limit("hour", None, rolling=True)], {"hour": 9}) == 0.0
