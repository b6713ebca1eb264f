"""The loop model: when it is asked, what it is shown, and what its answer comes to."""

from __future__ import annotations

import json

import pytest

from mlx_stack_proxy.loop_detection import loop_model
from mlx_stack_proxy.loop_detection.loop_model import JudgeAnswer
from mlx_stack_proxy.settings import JudgeSettings
from tests.loop_detection.histories import TASK, Json, history, says, steps, user

RULES = JudgeSettings(enabled=True)


def run(count: int) -> list[Json]:
    return [TASK, *steps(*(("search", {"query": str(n)}, f"found {n}") for n in range(count)))]


def asked_at(confidence: float | None) -> list[int]:
    """After how many turns of one task a judge that always answers so is asked."""
    answer = None if confidence is None else JudgeAnswer(confidence)
    at: int | None = None
    asked = []
    for count in range(1, 71):
        whole = history(run(count))
        if loop_model.is_due(whole, at, RULES):
            asked.append(count)
            at = loop_model.next_look(whole, answer)
    return asked


@pytest.mark.specification(165)
def test_when_it_is_asked() -> None:
    """First with the 30th request of a task."""
    assert asked_at(0.0) == [29, 44, 59]
    assert asked_at(0.5) == [29, 39, 49, 59, 69]
    assert asked_at(1.0) == [29, 34, 39, 44, 49, 54, 59, 64, 69]
    assert asked_at(None) == asked_at(0.0), "a judge that fails is asked as seldom as may be"


def test_what_it_is_shown() -> None:
    secret: Json = {"role": "system", "content": "The system prompt."}
    body = loop_model.question([secret, *run(30)], RULES)
    system, said = body["messages"]
    assert (system["role"], said["role"]) == ("system", "user")
    assert TASK["content"] in said["content"]
    assert said["content"].count("calls search(") == 20
    assert "found 29" in said["content"]
    assert "found 9\n" not in said["content"]
    assert "The system prompt." not in said["content"]
    assert body["response_format"]["json_schema"]["schema"]["required"] == [
        "reasoning",
        "confidence",
    ]
    json.dumps(body)


@pytest.mark.parametrize("messages", [[], [user("Hi.")], [says("Hi.")], [{"role": "tool"}]])
def test_a_question_about_little(messages: list[Json]) -> None:
    assert loop_model.question(messages, RULES)["messages"]


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ('{"reasoning": "same call", "confidence": 0.95}', JudgeAnswer(0.95, "same call")),
        ('```json\n{"confidence": 1, "reasoning": "r"}\n```', JudgeAnswer(1.0, "r")),
        ('{"confidence": 0}', JudgeAnswer(0.0)),
        ('<think>{"confidence": 1}? No.</think>{"confidence": 0.2}', JudgeAnswer(0.2)),
        ("", None),
        ("I think it loops.", None),
        ('{"confidence": "high"}', None),
        ('{"confidence": 95}', None),
        ('{"confidence": true}', None),
        ('{"confidence": 0.9', None),
        ("}{", None),
        ("[1]", None),
    ],
)
def test_reading_its_answer(text: str, answer: JudgeAnswer | None) -> None:
    assert loop_model.read_answer(text) == answer


@pytest.mark.parametrize(("confidence", "breaks"), [(0.91, True), (0.9, False), (0.0, False)])
def test_what_it_comes_to(confidence: float, breaks: bool) -> None:
    found = loop_model.to_finding(JudgeAnswer(confidence), history(run(33)), RULES)
    assert (found is not None) is breaks
    if found is not None:
        assert (found.detector, found.repeats) == ("judge", 33)
    assert loop_model.to_finding(None, history(run(33)), RULES) is None


@pytest.mark.parametrize("calls", [None, 5, "x", {}, [None, 5, {"function": None}]])
def test_a_question_about_odd_messages(calls: object) -> None:
    odd: list[Json] = [{"role": None}, {"role": "assistant", "content": 5, "tool_calls": calls}]
    json.dumps(loop_model.question(odd, RULES))


def test_another_task_counts_anew() -> None:
    first = history(run(40))
    assert loop_model.is_due(first, None, RULES)
    second = history([*run(40), says("Done."), user("Now that."), *run(10)[1:]])
    assert loop_model.task_of(second) != loop_model.task_of(first)
    assert not loop_model.is_due(second, None, RULES)


def test_long_messages_are_cut() -> None:
    body = loop_model.question([TASK, *steps(*[("read", {}, "x" * 99_999)] * 20)], RULES)
    assert len(body["messages"][1]["content"]) < 20 * 1000
