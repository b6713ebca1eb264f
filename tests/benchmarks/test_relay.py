"""What the relay writes down of model calls, and the faults that it throws in."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import aiohttp
import pytest

from benchmarks.agents.relay import AT, Faults, Relay, killing
from tests.support.scripted_server import SILENCE, Reply, ScriptedServer

Json = dict[str, Any]
ASKED: Json = {"model": "fast", "messages": [{"role": "user", "content": "Look up A-1"}]}


def sse(*bodies: Json) -> bytes:
    return b"".join(b"data: " + json.dumps(body).encode() + b"\n\n" for body in bodies)


def piece(**delta: Any) -> Json:
    return {"choices": [{"index": 0, "delta": delta, "finish_reason": None}]}


async def ask(relay: Relay, body: Json | None = None) -> tuple[int, bytes]:
    url = f"{relay.url}/v1/chat/completions"
    async with aiohttp.ClientSession() as session, session.post(url, json=body or ASKED) as reply:
        return reply.status, await reply.read()


async def test_a_reply_passes_unchanged_and_its_tokens_are_counted(
    upstream: ScriptedServer,
) -> None:
    said = {"choices": [{"message": {"content": "hi"}}], "usage": {"completion_tokens": 7}}
    upstream.will(Reply.json(said))
    async with Relay(upstream.url) as relay:
        relay.begin(0)
        assert await ask(relay) == (200, json.dumps(said).encode())
        (attempt,) = relay.attempts
    assert (attempt.model, attempt.status, attempt.tokens) == ("fast", 200, 7)
    assert (await upstream.next_call()).json() == ASKED


async def test_a_stream_that_is_left_counts_what_had_come(upstream: ScriptedServer) -> None:
    laps = [piece(content="Let me check. ") for _ in range(9)]
    upstream.will(Reply.sse(sse(*laps), SILENCE))
    async with Relay(upstream.url) as relay:
        relay.begin(0)
        url = f"{relay.url}/v1/chat/completions"
        async with (
            aiohttp.ClientSession() as session,
            session.post(url, json=ASKED) as reply,
        ):
            await reply.content.readuntil(b"\n\n")
        await relay.settled()
        (attempt,) = relay.attempts
    assert attempt.cut
    assert attempt.loop == "text"
    assert 0 < attempt.tokens <= 9


async def test_a_call_whose_result_is_there_is_burnt(upstream: ScriptedServer) -> None:
    function = {"name": "get_order", "arguments": '{"order_id": "A-1"}'}
    made = [{"id": "c1", "type": "function", "function": function}]
    history = [
        *ASKED["messages"],
        {"role": "assistant", "content": None, "tool_calls": made},
        {"role": "tool", "tool_call_id": "c1", "content": "paid"},
    ]
    upstream.will(Reply.json({"choices": [{"message": {"content": None, "tool_calls": made}}]}))
    async with Relay(upstream.url) as relay:
        relay.begin(0)
        await ask(relay, {**ASKED, "messages": history})
    assert relay.attempts[0].loop == "turns"


async def test_a_fault_that_is_thrown_in_answers_as_litellm_does(upstream: ScriptedServer) -> None:
    async with Relay(upstream.url, Faults(errors=1.0)) as relay:
        relay.begin(0)
        status, body = await ask(relay)
    assert status == 500
    assert "error" in json.loads(body)
    assert not upstream.calls
    assert relay.attempts[0].fault == "error"


@pytest.mark.parametrize(("calls", "killed"), [(1, []), (2, [True])])
async def test_a_server_is_killed_during_the_second_call_of_some_tasks(
    calls: int, killed: list[bool], upstream: ScriptedServer
) -> None:
    upstream.always(Reply.json({"choices": []}))
    asked = asyncio.Event()

    def kill() -> bool:
        asked.set()
        return True

    async with Relay(upstream.url) as relay, killing(relay, AT, kill) as found:
        for _ in range(calls):
            await ask(relay)
        if killed:
            await asked.wait()
    assert found == killed
    async with Relay(upstream.url) as relay, killing(relay, AT + 1, kill) as found:
        for _ in range(calls):
            await ask(relay)
    assert found == []


def test_faults_are_the_same_for_the_same_call_and_as_many_as_said() -> None:
    faults = Faults(errors=0.05, stalls=0.01, seed=3)
    drawn = [faults.of(task, call) for task in range(1000) for call in range(1, 6)]
    assert drawn == [faults.of(task, call) for task in range(1000) for call in range(1, 6)]
    assert 200 < drawn.count("error") < 300
    assert 30 < drawn.count("stall") < 75
    assert Faults(errors=1.0, stalls=0.0).of(0, 1) == "error"
    assert Faults(errors=0.0, stalls=0.0).of(0, 1) == ""
