"""The agent's loop, against a model that says what a test wants."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import httpx
import openai

from benchmarks.agents import agent, tasks

Json = dict[str, Any]


def completion(message: Json, finish: str) -> httpx.Response:
    choice = {"index": 0, "message": {"role": "assistant", **message}, "finish_reason": finish}
    body = {"id": "x", "object": "chat.completion", "created": 1, "model": "m", "choices": [choice]}
    usage = {"prompt_tokens": 9, "completion_tokens": 5, "total_tokens": 14}
    return httpx.Response(200, json={**body, "usage": usage}, headers={"x-mlx-stack-tier": "fast"})


def says(text: str) -> httpx.Response:
    return completion({"content": text}, "stop")


def calls(name: str, arguments: Json, number: int) -> httpx.Response:
    function = {"name": name, "arguments": json.dumps(arguments)}
    made = [{"id": f"c{number}", "type": "function", "function": function}]
    return completion({"content": None, "tool_calls": made}, "tool_calls")


async def run(model: Callable[[Json], httpx.Response], task: tasks.Task) -> Json:
    def answer(request: httpx.Request) -> httpx.Response:
        return model(json.loads(request.content))

    transport = httpx.MockTransport(answer)
    async with httpx.AsyncClient(transport=transport) as http:
        client = openai.AsyncOpenAI(
            base_url="http://test/v1", api_key="k", http_client=http, max_retries=0
        )
        return await agent.run(client, "fast", task, seed=1)


async def test_a_good_model_does_a_task() -> None:
    task = tasks.made(7, 6)[5]

    def good(body: Json) -> httpx.Response:
        step = sum(message["role"] == "tool" for message in body["messages"])
        if step == len(task.calls):
            return says(task.answer)
        return calls(*task.calls[step], number=step)

    done = await run(good, task)
    assert (done["right"], done["end"], done["wrong"]) == (True, "answered", "")
    assert [reply["flaw"] for reply in done["replies"]] == [""] * 7
    assert {reply["tier"] for reply in done["replies"]} == {"fast"}


async def test_results_and_errors_of_tools_go_back_to_the_model() -> None:
    seen: list[Json] = []

    def weak(body: Json) -> httpx.Response:
        seen.append(body)
        if len(seen) == 1:
            return calls("getOrder", {}, 1)
        return says("I give up.")

    done = await run(weak, tasks.made(7, 1)[0])
    assert not done["right"]
    assert [reply["flaw"] for reply in done["replies"]] == ["unknown_tool", ""]
    assert seen[1]["messages"][-1]["role"] == "tool"
    assert "no tool" in seen[1]["messages"][-1]["content"]
    assert seen[0]["seed"] != seen[1]["seed"]
    assert seen[0]["temperature"] == agent.TEMPERATURE


async def test_an_agent_has_only_so_much_patience() -> None:
    task = tasks.made(7, 1)[0]
    done = await run(lambda _: calls(*task.calls[0], 1), task)
    assert (done["right"], done["end"]) == (False, "turns")
    flaws = [reply["flaw"] for reply in done["replies"]]
    assert flaws == [""] * 3 + ["looping"] * (agent.MAX_TURNS - 3)
