"""Where the proxy puts its own words into a request's messages."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from mlx_stack_proxy.engine.outcome import Outcome
from mlx_stack_proxy.engine.own_words import place
from mlx_stack_proxy.engine.steps import Move, Retry
from mlx_stack_proxy.engine.verdicts import truncated
from tests.engine.exchanges import exchange

Json = dict[str, Any]
SYSTEM = {"role": "system", "content": "Be brief."}
USER = {"role": "user", "content": "Find it."}
CALLS = {
    "role": "assistant",
    "content": None,
    "tool_calls": [
        {"id": "a", "type": "function", "function": {"name": "f", "arguments": "{}"}},
        {"id": "b", "type": "function", "function": {"name": "f", "arguments": "{}"}},
    ],
}
RESULTS = [
    {"role": "tool", "tool_call_id": "a", "content": "one"},
    {"role": "tool", "tool_call_id": "b", "content": "two"},
]
SAID = {"role": "user", "content": "Mind the gap."}
IMAGE = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA=="}}


def placed(messages: list[Json], **how: str) -> list[Json]:
    before = copy.deepcopy(messages)
    new = place(messages, "Mind the gap.", **how)
    assert messages == before, "the given messages are not changed"
    return new


def test_behind_the_results_of_calls_comes_a_user_message() -> None:
    messages = [SYSTEM, USER, CALLS, *RESULTS]
    assert placed(messages) == [*messages, SAID]


def test_the_users_last_message_is_added_to() -> None:
    changed = {"role": "user", "content": "Find it.\n\nMind the gap."}
    assert placed([SYSTEM, USER]) == [SYSTEM, changed]
    assert placed([SYSTEM, USER], placement="tool_result") == [SYSTEM, changed]


def test_into_the_last_result_where_a_template_wants_that() -> None:
    last = {**RESULTS[1], "content": "two\n\nMind the gap."}
    messages = [SYSTEM, USER, CALLS, *RESULTS]
    assert placed(messages, placement="tool_result") == [*messages[:-1], last]


@pytest.mark.parametrize("last", [USER, RESULTS[1]])
def test_images_and_other_parts_stay(last: Json) -> None:
    parts = {**last, "content": [{"type": "text", "text": "See:"}, IMAGE]}
    (new,) = placed([parts], placement="tool_result")
    assert new["content"] == [*parts["content"], {"type": "text", "text": "Mind the gap."}]


@pytest.mark.parametrize("empty", ["", None])
def test_an_empty_message_gets_the_words_alone(empty: Any) -> None:
    (new,) = placed([{"role": "user", "content": empty}])
    assert new["content"] == "Mind the gap."


@pytest.mark.parametrize("role", ["system", "developer"])
def test_there_is_never_a_second_system_message(role: str) -> None:
    messages = [{**SYSTEM, "role": role}, USER, CALLS, *RESULTS]
    new = placed(messages, role="system")
    assert new == [{"role": role, "content": "Be brief.\n\nMind the gap."}, *messages[1:]]


def test_without_a_system_message_one_is_put_first() -> None:
    new = placed([USER, CALLS, *RESULTS], role="system")
    assert new == [{"role": "system", "content": "Mind the gap."}, USER, CALLS, *RESULTS]


def test_a_hint_holds_for_the_tier_that_it_was_given_to() -> None:
    whole = exchange()
    cut = Outcome("fast", truncated("reasoning"))
    for step, hint in (
        (Retry("output_truncated", 1, hint="Answer."), "Answer."),
        (Retry("server_error", 1), "Answer."),
        (Move("standard", "output_truncated"), ""),
    ):
        whole.outcomes.append(cut)
        whole.steps.append(step)
        assert whole.hint == hint
