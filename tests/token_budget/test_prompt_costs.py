"""The most that a prompt may cost: never too little, and of what goes on no more than need be."""

from __future__ import annotations

from typing import Any

import orjson
import pytest
from hypothesis import given

from mlx_stack_proxy.token_budget.prompt_costs import (
    MEDIUM,
    PROMPTS,
    SESSIONS,
    TEMPLATE,
    PromptCosts,
    measured,
)
from tests.engine.exchanges import ODD
from tests.support.replies import TOOLS, WEATHER

Json = dict[str, Any]
PROSE = {"type": "text", "text": "x" * 100}
PICTURE = {"type": "image_url", "image_url": {"url": "data:image/png;base64," + "A" * 10**6}}


def user(content: Any) -> Json:
    return {"role": "user", "content": content}


HI = [user("Hi")]


def said(text: str, **more: Any) -> Json:
    return {"role": "assistant", "content": text, **more}


def most(
    costs: PromptCosts,
    messages: list[Json],
    *,
    tier: str = "fast",
    session: str = "a",
    **more: Any,
) -> int:
    return costs.most(tier, session, measured({"messages": messages, **more}))


def take(costs: PromptCosts, messages: list[Json], tokens: int, **more: Any) -> None:
    costs.take("fast", "a", measured({"messages": messages, **more}), tokens)


def size(messages: list[Json]) -> int:
    return measured({"messages": messages}).sizes[-1]


# Each byte a token


@pytest.mark.parametrize(
    "message",
    [
        user("x" * 3500),
        user("ü" * 100),
        user([{"type": "text", "text": "x" * 50}, {"type": "text", "text": "y"}]),
        said("", tool_calls=[WEATHER]),
        # Most templates leave it out, but not all.
        said("Yes", reasoning_content="x" * 40),
        {**user("Hi"), "name": "x" * 40},
        {"role": "user", "content": [{"type": "tool_result", "content": [PROSE]}]},
        {"type": "function_call_output", "output": "x" * 100},
        "text",
        7,
    ],
)
def test_by_its_bytes(message: Any) -> None:
    whole = len(orjson.dumps(message))
    for field in ("messages", "input"):
        prompt = measured({field: [message] * 2, "max_tokens": 7, "model": "m"})
        # The names of what it consists of don't go into a prompt.
        assert 2 * whole - 200 <= prompt.sizes[-1] <= 2 * whole + 60
        assert prompt.sizes[-1] >= 200 or whole < 200
        assert (prompt.media[-1], prompt.rest) == (0, b"{}")


def test_all_else_that_a_prompt_may_have() -> None:
    schema = {"type": "json_schema", "json_schema": {"schema": {"x": "y" * 500}}}
    body = {"messages": HI, "tools": TOOLS, "response_format": schema, "system": "z" * 100}
    assert len(measured(body).rest) > len(orjson.dumps(TOOLS)) + 500 + 100
    assert (
        measured({"prompt": "x" * 500, "metadata": {"at": "12:00"}}).rest
        == b'{"prompt":"' + b"x" * 500 + b'"}'
    )
    assert len(measured({"prompt": [7] * 500}).rest) > 500


@pytest.mark.parametrize(
    "picture",
    [
        {"type": "image_url", "image_url": {"url": "data:image/png;base64," + "A" * 10**6}},
        {"type": "image", "source": {"type": "base64", "data": "A" * 10**6}},
        {"type": "input_audio", "input_audio": {"data": "A" * 10**6, "format": "wav"}},
        {"type": "tool_result", "content": [{"type": "image", "source": {"data": "A" * 10**6}}]},
        {"type": "x", "output": {"type": "computer_screenshot", "image_url": "A" * 10**6}},
        {"type": "function_call_output", "output": [{"type": "input_image", "url": "A" * 10**6}]},
    ],
)
def test_a_picture_is_not_its_bytes(picture: Json) -> None:
    prompt = measured({"messages": [user([PROSE, picture, picture])]})
    assert (prompt.sizes[-1] < 300, prompt.media[-1]) == (True, 2)


@pytest.mark.parametrize(
    "document",
    [
        {"type": "document", "source": {"type": "text", "data": "x" * 1000}},
        {
            "type": "image",
            "source": {"type": "content", "content": [{**PROSE, "text": "x" * 1000}]},
        },
        {"type": "input_file", "file_data": "x" * 1000},
        {"type": ["image"], "data": "x" * 1000},
        {"type": {}, "data": "x" * 1000},
    ],
)
def test_a_document_is(document: Json) -> None:
    prompt = measured({"messages": [user([document])]})
    assert (prompt.sizes[-1] > 1000, prompt.media[-1]) == (True, 0)


@given(ODD)
def test_no_body_raises(odd: Any) -> None:
    for body in ({"messages": odd, "tools": odd}, {"messages": [odd, odd]}, {"input": [odd]}):
        prompt = measured(body)
        costs = PromptCosts()
        before = costs.most("fast", "a", prompt)
        assert before >= TEMPLATE
        costs.take("fast", "a", prompt, 5)
        assert 0 <= costs.most("fast", "a", prompt) <= before


# What goes on from a prompt that was counted

TASK = [user("prose " * 2000)]
MORE = [*TASK, said("Let me see."), user("c0ffee" * 10)]


def test_only_what_is_new_is_bounded_by_its_bytes() -> None:
    costs = PromptCosts()
    assert most(costs, TASK) == size(TASK) + len(b"{}") + TEMPLATE > 12_000
    take(costs, TASK, 2010)
    assert most(costs, TASK) == most(costs, TASK, max_tokens=5, seed=7) == 2010
    assert most(costs, MORE) == 2010 + size(MORE) - size(TASK) < 2300
    take(costs, MORE, 2060)
    assert most(costs, [*MORE, user("Go on")]) == 2060 + size([user("Go on")])


@pytest.mark.parametrize(
    "message",
    [
        {**MORE[0], "cache_control": {"type": "ephemeral"}},
        user([{"type": "text", "text": "prose " * 2000}]),
        user([{"type": "text", "text": "prose " * 2000, "cache_control": {"type": "ephemeral"}}]),
    ],
)
def test_marks_for_a_cache_make_no_other_prompt(message: Json) -> None:
    costs = PromptCosts()
    take(costs, [message], 2010)
    assert most(costs, TASK) == 2010
    costs = PromptCosts()
    take(costs, TASK, 2010)
    assert most(costs, [message]) == 2010


def test_the_same_words_to_another_picture_are_another_prompt() -> None:
    costs = PromptCosts()
    seen = [user([PROSE, PICTURE])]
    take(costs, seen, 95)
    assert most(costs, seen) == 95
    other = {"type": "image_url", "image_url": {"url": "data:image/png;base64," + "B" * 10**6}}
    assert most(costs, [user([PROSE, other])]) > MEDIUM
    assert most(costs, [*seen, user([other])]) > 95 + MEDIUM


@pytest.mark.parametrize(
    "other",
    [
        {"messages": [user("other " * 2000), *MORE[1:]]},
        {"messages": [user("prose " * 2000 + "!"), *MORE[1:]]},
        {"messages": MORE[1:]},
        {"messages": [user("esorp " * 2000), *MORE[1:]]},
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
        costs.take("fast", f"s{n}", measured({"messages": TASK}), 2000)
    assert len(costs._prompts) == SESSIONS
    assert most(costs, TASK, session=f"s{SESSIONS}") == 2000
    assert most(costs, TASK, session="s0") > 12_000


def test_no_count_teaches_nothing() -> None:
    costs = PromptCosts()
    take(costs, HI, 0)
    assert most(costs, HI) == size(HI) + len(b"{}") + TEMPLATE
