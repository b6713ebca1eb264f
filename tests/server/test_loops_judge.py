"""A judge that is asked while exchanges run: when, within which bounds, and what follows."""

from __future__ import annotations

import json
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any

import httpx
import pytest

from mlx_stack_proxy import tasks
from mlx_stack_proxy.driver import loop_question as ask_loop_model
from mlx_stack_proxy.memory_pressure.pressure import Level
from tests.server.asking import MESSAGES, ask, checked_error, text_of
from tests.server.conftest import StartProxy
from tests.server.looping import TOOLS, calling
from tests.server.polling import metric, until_metric
from tests.support.forced_memory import ForcedMemory
from tests.support.replies import litellm_error, text_stream
from tests.support.running_proxy import RunningProxy
from tests.support.scripted_server import SILENCE, Call, Reply, Scripted, ScriptedServer, WhenWhole

Json = dict[str, Any]
RULES = "reliability.loop_detection"
ON = {f"{RULES}.judge.enabled": True, f"{RULES}.on_break": "error"}
QUESTIONS = "mlx_stack_judge_questions_total"
SURE = json.dumps({"reasoning": "It asks the same in new words.", "confidence": 0.95})
UNSURE = json.dumps({"reasoning": "It gets on.", "confidence": 0.2})
_numbers = count()


def is_question(call: Call) -> bool:
    return "stuck" in str(call.json()["messages"][0].get("content"))


def with_judge(answer: Scripted | None, otherwise: Callable[[], Reply]) -> WhenWhole:
    """Answers the judge's questions with ``answer``, all else with calls."""

    def choose(call: Call) -> Reply:
        if not is_question(call):
            return otherwise()
        assert isinstance(answer, Reply)
        return answer

    return WhenWhole(choose)


def new_call() -> Reply:
    return calling("look", f"new words {next(_numbers)}")


def transcript(turns: int) -> list[Json]:
    """A task of so many turns, each with another call and another result."""
    messages: list[Json] = [{"role": "system", "content": "Be an agent."}, *MESSAGES]
    for number in range(turns):
        function = {"name": "look", "arguments": json.dumps({"key": f"words {number}"})}
        call = {"id": f"c{number}", "type": "function", "function": function}
        messages.append({"role": "assistant", "content": None, "tool_calls": [call]})
        messages.append({"role": "tool", "tool_call_id": f"c{number}", "content": f"r {number}"})
    return messages


async def turn(proxy: RunningProxy, turns: int, **headers: str) -> httpx.Response:
    """The agent's request after so many turns."""
    messages = transcript(turns)
    return await ask(proxy, headers, messages=messages, tools=TOOLS, stream=True)


def questions(upstream: ScriptedServer) -> list[Call]:
    return [call for call in upstream.calls if is_question(call)]


@pytest.mark.parametrize("capture", [False, True])
async def test_it_is_asked_at_turn_30_and_its_loop_is_broken_at_the_next(
    upstream: ScriptedServer, start_proxy: StartProxy, tmp_path: Path, capture: bool
) -> None:
    upstream.otherwise = with_judge(text_stream(SURE), new_call)
    captures = {"capture_failures": capture, "capture_path": str(tmp_path)}
    proxy = await start_proxy({**ON, "observability": captures})
    assert (await turn(proxy, 28)).status_code == 200
    assert (await turn(proxy, 29)).status_code == 200
    await until_metric(proxy, QUESTIONS, 1, result="answered")
    (question,) = questions(upstream)
    body = question.json()
    assert body["model"] == "standard"
    assert body["response_format"]["json_schema"]["schema"]["required"]
    assert body["messages"][1]["content"].count("calls look(") == 20
    broken = await turn(proxy, 30)
    error = checked_error(broken, 422, "loop_detected")
    assert (error["detector"], error["repeats"]) == ("judge", 29)
    assert broken.headers["x-mlx-stack-loop"] == "circuit_break;detector=judge"
    told = [call for call in upstream.calls if not is_question(call)][-1].json()["messages"][-1]
    assert "these steps bring nothing new" in told["content"], "it was asked once, with the hint"
    assert (await turn(proxy, 30)).status_code == 200, "history alone refuses nothing"
    events = (await proxy.client.get("/mlx-stack/events?kind=loop_break")).json()["events"]
    assert events[-1]["detail"]["confidence"] == 0.95
    # The judge may quote what it has read: that is kept where failures are.
    assert ("It asks the same" in json.dumps(events)) is capture


@pytest.mark.specification(170)
async def test_a_second_verdict_on_a_task_is_proof(start_proxy: StartProxy) -> None:
    """After the first the next tier's reply goes out, after the second no reply that goes on."""
    ladder = {"reliability.escalation.chain": ["fast", "standard"]}
    proxy = await start_proxy({**ON, **ladder, f"{RULES}.on_break": "escalate"})
    proxy.upstream.otherwise = with_judge(text_stream(SURE), new_call)
    await turn(proxy, 29)
    await until_metric(proxy, QUESTIONS, 1, result="answered")
    moved = await turn(proxy, 30)
    assert moved.status_code == 200
    assert moved.headers["x-mlx-stack-escalated-from"] == "fast"
    await turn(proxy, 40)
    await until_metric(proxy, QUESTIONS, 2, result="answered")
    for turns in (41, 42, 60):
        error = checked_error(await turn(proxy, turns), 422, "loop_detected")
        assert error["detector"] == "judge"
    assert len(questions(proxy.upstream)) == 2
    proxy.upstream.otherwise = text_stream("I can not find it.")
    assert text_of((await turn(proxy, 61)).content) == "I can not find it."


async def test_an_agent_that_stops_calling_by_itself_is_let_through(
    start_proxy: StartProxy,
) -> None:
    proxy = await start_proxy(ON)
    proxy.upstream.otherwise = with_judge(text_stream(SURE), new_call)
    await turn(proxy, 29)
    await until_metric(proxy, QUESTIONS, 1, result="answered")
    proxy.upstream.otherwise = text_stream("I can not find it.")
    response = await turn(proxy, 30)
    assert text_of(response.content) == "I can not find it."
    assert response.headers["x-mlx-stack-loop"] == "warning;detector=judge"


@pytest.mark.parametrize(
    ("answer", "result"),
    [
        (text_stream(UNSURE), "answered"),
        (text_stream("I think it loops."), "no_answer"),
        (litellm_error(500, "no"), "failed"),
        (Reply.sse(b"data: {\n\n"), "failed"),
        (Reply.json(b"<html>"), "failed"),
        (Reply.sse(SILENCE), "timed_out"),
    ],
)
async def test_no_answer_and_no_loop(
    answer: Reply, result: str, start_proxy: StartProxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It isn't asked again before 13 or 15 turns: tests/loop_detection/test_loop_model.py."""
    monkeypatch.setattr(ask_loop_model, "SECONDS", 0.5 if result == "timed_out" else 30.0)
    proxy = await start_proxy(ON)
    proxy.upstream.otherwise = with_judge(answer, new_call)
    await turn(proxy, 29)
    await until_metric(proxy, QUESTIONS, 1, result=result)
    assert [(await turn(proxy, n)).status_code for n in (30, 35)] == [200, 200]
    assert len(questions(proxy.upstream)) == 1


async def test_nobody_waits_for_it_and_it_ends_with_the_proxy(start_proxy: StartProxy) -> None:
    proxy = await start_proxy(ON)
    proxy.upstream.otherwise = with_judge(Reply.sse(SILENCE), new_call)
    assert [(await turn(proxy, n)).status_code for n in (29, 30, 35)] == [200] * 3
    question = await proxy.upstream.next_call()
    await question.whole.wait()
    while not is_question(question):
        question = await proxy.upstream.next_call()
        await question.whole.wait()
    proxy.server.should_exit = True
    assert await question.left_within(5)


async def test_its_tokens_are_the_sessions(start_proxy: StartProxy) -> None:
    proxy = await start_proxy(ON)
    proxy.upstream.otherwise = with_judge(text_stream(SURE), new_call)
    named = {"X-MLX-Stack-Session": "run-9"}

    async def used() -> int:
        return int((await proxy.client.get("/mlx-stack/sessions/run-9")).json()["used"])

    await turn(proxy, 28, **named)
    one = await used()
    await turn(proxy, 29, **named)
    await until_metric(proxy, QUESTIONS, 1, result="answered")
    assert await used() == 3 * one, "a reply and a judge's answer cost the same here"
    assert await metric(proxy, "mlx_stack_tokens_total", tier="standard", direction="output") == 4
    report = (await proxy.client.get("/mlx-stack/report")).json()
    assert report["by_tier"]["standard"]["tokens_out"] == 4


OFF = {f"{RULES}.judge.enabled": False}
CLOUD = {"tiers.standard": {"model": "standard", "local": False}}
CONSENT = {**CLOUD, "reliability.escalation.cloud_fallback": {"model": "m"}}


@pytest.mark.parametrize(
    ("changes", "level", "most", "result"),
    [
        (OFF, Level.NORMAL, 8, None),
        ({"reliability.token_budget.per_session": 600}, Level.NORMAL, 8, "no_budget"),
        (CLOUD, Level.NORMAL, 8, "left_out"),
        (CONSENT, Level.NORMAL, 8, "left_out"),
        ({}, Level.CRITICAL, 8, "left_out"),
        ({}, Level.NORMAL, 0, "left_out"),
    ],
    ids=[
        "off",
        "over a budget",
        "no consent",
        "against the client's will",
        "short of memory",
        "too many",
    ],
)
async def test_it_is_not_asked(
    changes: Json,
    level: Level,
    most: int,
    result: str | None,
    *,
    start_proxy: StartProxy,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(tasks, "MAX_TASKS", most)
    memory = ForcedMemory()
    proxy = await start_proxy({**ON, **changes}, memory=memory)
    proxy.upstream.otherwise = with_judge(text_stream(SURE), new_call)
    await memory.shows(level)
    against = {} if changes is CLOUD else {"X-MLX-Stack-Cloud": "off"}
    for turns in (29, 30):
        assert (await turn(proxy, turns, **against)).status_code == 200
        if result is not None:
            await until_metric(proxy, QUESTIONS, 1, result=result)
    assert questions(proxy.upstream) == []
