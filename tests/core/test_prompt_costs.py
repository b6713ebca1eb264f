"""The most that a prompt may cost: never too little, and of what goes on no more than need be."""

from __future__ import annotations

from typing import Any

import orjson
import pytest
from hypothesis import given

from app.core.prompt_costs import (
    PER_MESSAGE,
    PROMPTS,
    SECONDS,
    SESSIONS,
    TEMPLATE,
    PromptCosts,
    measured,
)
from app.core.prompt_size import TOKENS_PER_IMAGE, estimate_prompt_tokens
from tests.core.exchanges import ODD
from tests.support.replies import TOOLS, WEATHER

Json = dict[str, Any]
NOW = 1_780_000_000.0 // SECONDS * SECONDS
PICTURE = {"type": "image_url", "image_url": {"url": "data:image/png;base64," + "A" * 10**6}}


def user(content: Any) -> Json:
    return {"role": "user", "content": content}


def said(text: str, **more: Any) -> Json:
    return {"role": "assistant", "content": text, **more}


def most(
    costs: PromptCosts,
    messages: list[Json],
    *,
    tier: str = "fast",
    session: str = "a",
    now: float = NOW,
    **more: Any,
) -> int:
    return costs.most(tier, session, measured({"messages": messages, **more}), now)


def take(costs: PromptCosts, messages: list[Json], tokens: int, **more: Any) -> None:
    costs.take("fast", "a", measured({"messages": messages, **more}), tokens, NOW)


# Each byte a token


@pytest.mark.parametrize(
    ("message", "bound"),
    [
        (user("x" * 3500), 3500),
        (user("ü" * 100), 200),
        (user([{"type": "text", "text": "x" * 50}, PICTURE]), 50 + TOKENS_PER_IMAGE),
        (said("", tool_calls=[WEATHER]), len(orjson.dumps([WEATHER]))),
        # Most templates leave it out, but not all.
        (said("Yes", reasoning_content="x" * 40), 43),
    ],
)
def test_by_its_bytes(message: Json, bound: int) -> None:
    assert measured({"messages": [message]}).bound == bound + PER_MESSAGE
    twice = measured({"messages": [message] * 2, "tools": TOOLS}).bound
    assert twice == 2 * (bound + PER_MESSAGE) + len(orjson.dumps(TOOLS))


@given(ODD)
def test_no_body_raises(odd: Any) -> None:
    for body in ({"messages": odd, "tools": odd}, {"messages": [odd, odd]}):
        prompt = measured(body)
        assert prompt.bound >= estimate_prompt_tokens(body) >= 0
        costs = PromptCosts()
        costs.take("fast", "a", prompt, 5, NOW)
        assert costs.most("fast", "a", prompt, NOW) >= 0


def test_nothing_to_count() -> None:
    assert measured({}).bound == measured({"messages": "text"}).bound == 0


# What goes on from a prompt that was counted

TASK = [user("prose " * 2000)]
MORE = [*TASK, said("Let me see."), user("c0ffee" * 10)]


def test_only_what_is_new_is_bounded_by_its_bytes() -> None:
    costs = PromptCosts()
    assert most(costs, TASK) == 12_000 + PER_MESSAGE + TEMPLATE
    take(costs, TASK, 2010)
    assert most(costs, TASK) == 2010
    assert most(costs, MORE) == 2010 + 11 + 60 + 2 * PER_MESSAGE
    take(costs, MORE, 2060)
    assert most(costs, [*MORE, user("Go on")]) == 2060 + 5 + PER_MESSAGE


@pytest.mark.parametrize(
    "other",
    [
        {"messages": [user("other " * 2000), *MORE[1:]]},
        {"messages": [user("prose " * 2000 + "!"), *MORE[1:]]},
        {"messages": MORE[1:]},
        {"messages": MORE, "tools": TOOLS},
        {"messages": MORE, "session": "b"},
        {"messages": MORE, "tier": "standard"},
    ],
)
def test_another_prompt_is_not_taken_for_it(other: Json) -> None:
    costs = PromptCosts()
    take(costs, TASK, 2010)
    assert most(costs, **other) == most(PromptCosts(), **other)


def test_the_prompts_of_sub_agents_are_kept_apart() -> None:
    costs = PromptCosts()
    agents = [[user(f"{n} " + "prose " * 2000)] for n in range(PROMPTS + 1)]
    for n, messages in enumerate(agents):
        take(costs, messages, 2000 + n)
    found = [most(costs, messages) for messages in agents]
    assert found[0] > 12_000, "the oldest is forgotten"
    assert found[1:] == [2000 + n for n in range(1, PROMPTS + 1)]


def test_what_is_remembered_is_bounded() -> None:
    costs = PromptCosts()
    for n in range(SESSIONS + 5):
        costs.take("fast", f"s{n}", measured({"messages": TASK}), 2000, NOW)
    assert len(costs._prompts) == SESSIONS
    assert most(costs, TASK, session=f"s{SESSIONS}") == 2000
    assert most(costs, TASK, session="s0") > 12_000


# What a template adds

HI = [user("Hi")]
BARE = 2 + PER_MESSAGE


def test_what_a_template_adds_is_learnt() -> None:
    costs = PromptCosts()
    take(costs, HI, 900)
    assert most(costs, [user("Ho")], session="b") == 900
    assert most(costs, [user("Ho")], session="b", tier="standard") == BARE + TEMPLATE
    take(costs, [user("Hey")], 500)
    assert most(costs, [user("Ho")], session="b") == 900, "the most that was seen"


def test_a_picture_is_no_template() -> None:
    costs = PromptCosts()
    take(costs, [user([PICTURE])], 30_000)
    assert most(costs, HI) == BARE + TEMPLATE


def test_what_is_long_ago_is_forgotten() -> None:
    costs = PromptCosts()
    take(costs, HI, 900)
    found = [most(costs, HI, session="b", now=NOW + n * SECONDS) for n in (-9, -1, 0, 1, 2)]
    assert found == [BARE + TEMPLATE, 900, 900, 900, BARE + TEMPLATE]


def test_no_count_teaches_nothing() -> None:
    costs = PromptCosts()
    take(costs, HI, 0)
    take(costs, [], 900)
    assert most(costs, HI) == BARE + TEMPLATE
