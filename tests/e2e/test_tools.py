"""An agent's loop over the demo tools: question, calls, results, answer."""

from __future__ import annotations

from typing import Any

import openai
import pytest
from demo_tiers import questions, tools

# The model is small: of tasks of two calls it gets about nine in ten right. A stack that breaks
# calls gets none right.
TASKS = 4
RIGHT = 3


def ask(client: openai.OpenAI, messages: list[Any], stream: bool) -> Any:
    request = {"model": "standard", "messages": messages, "tools": tools.TOOLS, "temperature": 0}
    if not stream:
        return client.chat.completions.create(**request).choices[0]  # type: ignore[call-overload]
    with client.chat.completions.stream(**request) as events:
        return events.get_final_completion().choices[0]


def run(client: openai.OpenAI, task: questions.Task, stream: bool) -> bool:
    """Work on a task as an agent does; is the world as it should be, and the answer right?"""
    world = questions.world(task)
    messages: list[Any] = [{"role": "user", "content": task.text}]
    for _ in range(len(task.calls) + 2):
        choice = ask(client, messages, stream)
        calls = choice.message.tool_calls or []
        if not calls:
            break
        assert choice.finish_reason == "tool_calls"
        messages.append(
            choice.message.model_dump(exclude_none=True, include={"role", "content", "tool_calls"})
        )
        for call in calls:
            result = world.call_json(call.function.name, call.function.arguments)
            messages.append({"role": "tool", "tool_call_id": call.id, "content": result})
    text = choice.message.content or ""
    done = world.notes == task.notes and world.statuses == task.statuses
    return done and bool(text) and all(str(fact) in text for fact in task.facts)


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
def test_tools_over_three_turns(client: openai.OpenAI, stream: bool) -> None:
    # Two calls, then the answer: three replies of the model.
    right = [
        run(client, task, stream)
        for task in questions.tasks(seed=11, split="train", count=TASKS, low=2, high=2)
    ]
    assert sum(right) >= RIGHT, f"{sum(right)} of {TASKS} tasks right"
