"""The tap and the scripted model: what makes a run right or wrong."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import httpx
import pytest

from benchmarks.frameworks.catalogue import LOOK_UP, Framework
from benchmarks.frameworks.report import Run, table
from benchmarks.frameworks.scripted import BAD, Model, Say, results_in
from benchmarks.frameworks.tap import Tap
from tests.faults.catalogue import EMPTY, LOST_CALL, calling, whole
from tests.support.ports import free_port
from tests.support.replies import completion, litellm_error, text_chunks
from tests.support.running_proxy import running_proxy
from tests.support.scripted_server import Reply, ScriptedServer, WhenWhole

Json = dict[str, Any]
SCHEMA = {
    "type": "object",
    "properties": {"order_id": {"type": "string"}},
    "required": ["order_id"],
}
TOOL = {"type": "function", "function": {"name": "get_order", "parameters": SCHEMA}}
ASK: Json = {"model": "fast", "messages": [{"role": "user", "content": "?"}], "tools": [TOOL]}
GOOD = '{"order_id": "A-1043"}'


async def seen(reply: Reply, stream: bool = True) -> Any:
    async with ScriptedServer() as server, Tap(free_port(), server.url) as tap:
        server.always(reply)
        async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{tap.port}") as client:
            got = await client.post("/v1/chat/completions", json={**ASK, "stream": stream})
    assert bytes(tap.seen[0].reply) == got.content
    return tap.seen[0]


@pytest.mark.parametrize(
    "reply",
    [
        LOST_CALL,
        EMPTY,
        calling("get_orders", GOOD),
        calling("get_order", "{}"),
        calling("get_order", '{"order_id'),
        whole(text_chunks(f"<tool_call>{GOOD}</tool_call>")),
        Reply.sse(b'data: {"choices": [{"index": 0, "delta": {"content": "Half"}}]}\n\n'),
    ],
    ids=["lost", "empty", "name", "arguments", "json", "text", "no end"],
)
async def test_broken_replies_are_noticed(reply: Reply) -> None:
    assert (await seen(reply)).broken()


@pytest.mark.parametrize(
    "reply",
    [
        calling("get_order", GOOD),
        whole(text_chunks("It is ", "shipped.")),
        Reply.json(completion({"content": "Shipped."})),
        litellm_error(422, "no"),
    ],
    ids=["call", "text", "whole", "error"],
)
async def test_others_are_not(reply: Reply) -> None:
    assert not (await seen(reply)).broken()


async def test_an_agent_comes_through_all_faults() -> None:
    """An agent's loop against the scripted model, by way of the real proxy."""
    model = Model((LOOK_UP, Say("It is shipped.")), results_in, faults=True)
    retries = {"reliability.tool_validation": {"max_retries": 3}}
    retries["reliability.escalation"] = {"chain": ["fast"], "max_retries_before_escalate": 3}
    async with ScriptedServer() as upstream:
        upstream.always(WhenWhole(model.reply))
        async with (
            running_proxy(upstream.url, retries) as proxy,
            Tap(free_port(), proxy.url) as tap,
        ):
            said = await _agent(f"http://127.0.0.1:{tap.port}")
    run = Run(Framework("One", "one", "one"), "1.0", "faults", tap.seen, True, model)
    assert said == "It is shipped."
    assert run.verdict == "right", run.verdict
    assert sum(model.played.values()) == 4
    assert "right: 2 requests, 4 bad replies, 4 retried" in table([run])


async def _agent(url: str) -> str:
    messages = list(ASK["messages"])
    async with httpx.AsyncClient(base_url=url, timeout=60) as client:
        while True:
            reply = await client.post("/v1/chat/completions", json={**ASK, "messages": messages})
            message = reply.json()["choices"][0]["message"]
            messages.append(message)
            if not message.get("tool_calls"):
                return str(message["content"])
            for call in message["tool_calls"]:
                made = json.loads(call["function"]["arguments"])
                result = {"role": "tool", "tool_call_id": call["id"], "content": json.dumps(made)}
                messages.append(result)


def test_a_run_without_a_tool_is_wrong(tmp_path: Path) -> None:
    run = Run(Framework("One", "one", "one"), "1.0", "scripted", [], True, None)
    assert run.verdict == "wrong: it asked for no chat completion"


def test_results_of_corrections_are_no_turns() -> None:
    results = [{"role": "tool", "tool_call_id": f"{mark}1"} for mark in (BAD, "call_")]
    assert results_in({"messages": results}) == 1
