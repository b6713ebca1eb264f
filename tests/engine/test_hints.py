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
from tests.support.messages import called, gave, says, tool_call

Json = dict[str, Any]
SYSTEM = says("system", "Be brief.")
USER = says("user", "Find it.")
CALLS = called(tool_call("a"), tool_call("b"))
RESULTS = [gave("a", "one"), gave("b", "two")]
SAID = says("user", "Mind the gap.")
IMAGE = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA=="}}


def placed(messages: list[Json], **how: str) -> list[Json]:
    before = copy.deepcopy(messages)
    new = place(messages, "Mind the gap.", **how)
    assert messages == before, "the given messages are not changed"
    return new


TASK = [USER, CALLS, *RESULTS]
ADDED = says("user", "Find it.\n\nMind the gap.")
WORDS = "Mind the gap."
IN_RESULT, AS_SYSTEM = {"placement": "tool_result"}, {"role": "system"}
# Where they go: a user's message after the results of calls, else into the user's last one; or into
# the last result; or into the one system message that there may be, which is put first.
PLACES: list[tuple[list[Json], dict[str, str], list[Json]]] = [
    ([SYSTEM, *TASK], {}, [SYSTEM, *TASK, SAID]),
    ([SYSTEM, USER], {}, [SYSTEM, ADDED]),
    ([SYSTEM, USER], IN_RESULT, [SYSTEM, ADDED]),
    ([says("user", "")], {}, [SAID]),
    ([says("user", None)], {}, [SAID]),
    ([SYSTEM, *TASK], IN_RESULT, [SYSTEM, *TASK[:-1], gave("b", "two\n\nMind the gap.")]),
    *(
        ([says(role, "Be brief."), *TASK], AS_SYSTEM, [says(role, f"Be brief.\n\n{WORDS}"), *TASK])
        for role in ("system", "developer")
    ),
    (TASK, AS_SYSTEM, [says("system", WORDS), *TASK]),
]


@pytest.mark.parametrize(("messages", "how", "expected"), PLACES)
def test_where_the_words_go(
    messages: list[Json], how: dict[str, str], expected: list[Json]
) -> None:
    assert placed(messages, **how) == expected


@pytest.mark.parametrize("last", [USER, RESULTS[1]])
def test_images_and_other_parts_stay(last: Json) -> None:
    parts = {**last, "content": [{"type": "text", "text": "See:"}, IMAGE]}
    (new,) = placed([parts], placement="tool_result")
    assert new["content"] == [*parts["content"], {"type": "text", "text": "Mind the gap."}]


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
