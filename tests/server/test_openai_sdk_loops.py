"""An agent of three tools, written with OpenAI's own client, that its model drives in a circle."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable
from itertools import chain, cycle, repeat
from typing import Any

import openai
import pytest

from tests.server.asking import MESSAGES
from tests.server.conftest import StartProxy
from tests.server.looping import BROKEN, CHAIN, HINTED, RULES, TOOLS, calling
from tests.support.replies import text_stream
from tests.support.running_proxy import RunningProxy
from tests.support.scripted_server import Call, Reply, ScriptedServer, WhenWhole

Json = dict[str, Any]
TOLD = 6  # the request that is told
STREAMS = pytest.mark.parametrize("streams", [True, False])


class Agent:
    """Ask, run the calls, ask again; each tool always says the same."""

    def __init__(self, client: openai.AsyncOpenAI, *, streams: bool) -> None:
        self._client = client
        self._streams = streams
        self.messages: list[Any] = list(MESSAGES)
        self.loops: list[str | None] = []  # X-MLX-Stack-Loop of each request

    async def ask(self) -> Any:
        """One request; its only choice."""
        create: Any = self._client.chat.completions.with_raw_response.create
        common: Json = {"model": "auto", "messages": self.messages, "tools": TOOLS}
        if not self._streams:
            raw = await create(**common)
            self.loops.append(raw.headers.get("x-mlx-stack-loop"))
            return raw.parse().choices[0]
        raw = await create(**common, stream=True)
        self.loops.append(raw.headers.get("x-mlx-stack-loop"))
        state = openai.lib.streaming.chat.ChatCompletionStreamState(input_tools=TOOLS)
        async for chunk in raw.parse():
            state.handle_chunk(chunk)
        return state.get_final_completion().choices[0]

    async def run(self, requests: int) -> Any:
        """The last of so many requests' choices, the calls of those before it run."""
        for _ in range(requests - 1):
            choice = await self.ask()
            self.messages.append(choice.message.model_dump(include={"role", "tool_calls"}))
            for call in choice.message.tool_calls:
                said = f"result of {call.function.name}"
                self.messages.append({"role": "tool", "tool_call_id": call.id, "content": said})
        return await self.ask()


@pytest.fixture
async def make_agent(start_proxy: StartProxy) -> AsyncIterator[Callable[..., Any]]:
    clients: list[openai.AsyncOpenAI] = []

    async def make(changes: Json, *, streams: bool) -> Agent:
        proxy: RunningProxy = await start_proxy(changes)
        client = openai.AsyncOpenAI(base_url=f"{proxy.url}/v1", api_key="local")
        clients.append(client)
        return Agent(client, streams=streams)

    yield make
    for client in clients:
        await client.close()


def a_b_a_b(then: Callable[[], Reply] | None = None) -> WhenWhole:
    """Of tier fast: look, read, look, read …; of any other: ``then``."""
    names = cycle(("look", "read"))

    def choose(call: Call) -> Reply:
        if then is not None and call.json()["model"] != "fast":
            return then()
        return calling(next(names))

    return WhenWhole(choose)


def hinted(upstream: ScriptedServer) -> list[int]:
    """Which upstream calls were told, by number from 1."""
    asked = [call.json()["messages"] for call in upstream.calls]
    return [n for n, messages in enumerate(asked, 1) if HINTED in str(messages)]


@STREAMS
async def test_escalate(
    streams: bool,
    upstream: ScriptedServer,
    make_agent: Callable[..., Any],
) -> None:
    upstream.otherwise = a_b_a_b(lambda: calling("note", "an idea of its own"))
    changes = {CHAIN: ["fast", "standard"]}
    agent = await make_agent(changes, streams=streams)
    choice = await agent.run(TOLD + 1)
    assert [call.function.name for call in choice.message.tool_calls] == ["note"]
    assert choice.finish_reason == "tool_calls"
    assert agent.loops[:-2] == [None] * (TOLD - 1)
    assert agent.loops[-2:] == ["warning;detector=repetition", "circuit_break;detector=repetition"]
    assert hinted(upstream) == [TOLD, TOLD + 2], "and the next tier is told as well"
    assert upstream.calls[-1].json()["model"] == "standard"


@STREAMS
async def test_error(
    streams: bool,
    upstream: ScriptedServer,
    make_agent: Callable[..., Any],
) -> None:
    upstream.otherwise = a_b_a_b()
    changes = {f"{RULES}.on_break": "error"}
    agent = await make_agent(changes, streams=streams)
    with pytest.raises(openai.UnprocessableEntityError) as caught:
        await agent.run(TOLD + 1)
    error = caught.value
    assert (error.status_code, error.type) == (422, "loop_detected")
    assert error.body["message"] == BROKEN
    assert (error.body["detector"], error.body["repeats"]) == ("repetition", 3)
    assert error.body["retry_after"] == 5
    assert error.response.headers["x-mlx-stack-loop"] == "circuit_break;detector=repetition"
    assert agent.loops == [None] * (TOLD - 1) + ["warning;detector=repetition"]
    assert hinted(upstream) == [TOLD]
    assert len(upstream.calls) == TOLD + 1, "the SDK does not ask again"


@STREAMS
async def test_stop(
    streams: bool,
    upstream: ScriptedServer,
    make_agent: Callable[..., Any],
) -> None:
    upstream.otherwise = a_b_a_b()
    changes = {f"{RULES}.on_break": "stop"}
    agent = await make_agent(changes, streams=streams)
    choice = await agent.run(TOLD + 1)
    assert choice.finish_reason == "stop"
    assert not choice.message.tool_calls
    assert choice.message.content.startswith("[Stopped: the call of ")
    assert "repetition, 3x" in choice.message.content
    assert agent.loops[-1] == "circuit_break;detector=repetition"
    assert hinted(upstream) == [TOLD]


async def test_an_agent_that_listens_gets_on(
    upstream: ScriptedServer, make_agent: Callable[..., Any]
) -> None:
    names = chain(("look", "read") * 3, repeat(""))

    def reply(call: Call) -> Reply:
        told = HINTED in str(call.json()["messages"])
        return text_stream("It is not there.") if told else calling(next(names))

    upstream.otherwise = WhenWhole(reply)
    agent = await make_agent({}, streams=False)
    choice = await agent.run(6)
    assert choice.message.content == "It is not there."
    assert json.dumps(agent.messages).count(HINTED) == 0, "the client never sees it"
