"""``/v1/responses`` through the proxy: guarded like chat completions, each error costs one try.

OpenAI's own SDK is the judge: it accumulates each stream, and warns of what it can't serialise.
Among the cases are the seven that a server of Open Responses has to pass: a text, the same
streamed, a system prompt, a call of a tool, the same streamed, an image, several turns.
"""

from __future__ import annotations

import asyncio
import json
from typing import Any

import openai
import pytest

from tests.server.calling import Json, messages_of
from tests.server.conftest import StartProxy
from tests.support.messages import gave
from tests.support.replies import chunk, stream, text_stream
from tests.support.running_proxy import RunningProxy
from tests.support.scripted_server import RESET, Reply, ScriptedServer, Wait
from tests.tool_validation.calls import parameters
from tests.wire.responses.made import call, check_strictly, events
from tests.wire.responses.test_stream import EVERYTHING
from tests.wire.responses.test_tools import AGENTS, PATCH, READ

WEATHER: Any = {
    "type": "function",
    "name": "weather",
    "description": "The weather in a city.",
    "parameters": {**parameters("city", city="string"), "additionalProperties": False},
    "strict": True,
}
ASKED: dict[str, Any] = {"model": "fast", "input": "How is Oslo?", "tools": [WEATHER]}


def said(*deltas: Json) -> Reply:
    finish = "tool_calls" if any("tool_calls" in delta for delta in deltas) else "stop"
    return stream([chunk({"role": "assistant"}), *map(chunk, deltas), chunk({}, finish)])


OF_OSLO = call("weather", '{"city":"Oslo"}')
GOOD, BAD = said(OF_OSLO), said(call("wether", '{"town":"Oslo"}'))
HELLO = said({"content": "Hello"}, {"content": "."})


@pytest.fixture
async def proxy(start_proxy: StartProxy) -> RunningProxy:
    return await start_proxy({"reliability.tool_validation.max_retries": 1})


async def ask(client: openai.AsyncOpenAI, **body: Any) -> Any:
    found = await client.responses.create(model="fast", **body)
    check_strictly(found)
    return found


async def read_events(client: openai.AsyncOpenAI, **body: Any) -> Any:
    """Each event is read strictly; the last one has the response."""
    last: Any = None
    async for event in await client.responses.create(model="fast", stream=True, **body):
        check_strictly(event)
        last = event
    assert last.type == "response.completed"
    return last.response


async def put_together(client: openai.AsyncOpenAI, **body: Any) -> Any:
    """The SDK puts the events together; its own types for that can't be serialised strictly."""
    async with client.responses.stream(model="fast", **body) as events:
        types = [event.type async for event in events]
        found = await events.get_final_response()
    assert (types[0], types[-1]) == ("response.created", "response.completed")
    return found


each_way = pytest.mark.parametrize("by", [ask, read_events, put_together])


@each_way
async def test_a_text(by: Any, proxy: RunningProxy, sdk: openai.AsyncOpenAI) -> None:
    proxy.upstream.will(HELLO)
    found = await by(sdk, input="Say hello.")
    assert found.output_text == "Hello."
    assert (found.status, found.model, found.store) == ("completed", "fast", False)
    assert found.usage.input_tokens_details.cache_write_tokens == 0
    assert found.usage.total_tokens == 13


@each_way
async def test_an_image(by: Any, proxy: RunningProxy, sdk: openai.AsyncOpenAI) -> None:
    proxy.upstream.will(HELLO)
    shown = {"type": "input_image", "detail": "auto", "image_url": "data:image/png;base64,AA=="}
    content = [{"type": "input_text", "text": "What is it?"}, shown]
    await by(sdk, input=[{"role": "user", "content": content}])
    kinds = [part["type"] for part in messages_of(proxy.upstream.calls[0])[0]["content"]]
    assert kinds == ["text", "image_url"]


@each_way
async def test_several_turns(by: Any, proxy: RunningProxy, sdk: openai.AsyncOpenAI) -> None:
    """What came is sent back as it is, the way that the SDK's manual shows."""
    proxy.upstream.will(said({"reasoning_content": "Hm."}, OF_OSLO), HELLO)
    items: list[Any] = [{"role": "user", "content": "How is Oslo?"}]
    first = await by(sdk, input=items, tools=[WEATHER])
    items += [item.to_dict() for item in first.output]
    items.append({"type": "function_call_output", "call_id": "call_1", "output": "Rain."})
    assert (await by(sdk, input=items, tools=[WEATHER])).output_text == "Hello."
    asked, called, gave = messages_of(proxy.upstream.calls[1])
    assert (asked["role"], called["reasoning_content"]) == ("user", "Hm.")
    assert called["tool_calls"][0]["id"] == gave["tool_call_id"] == "call_1"


@each_way
async def test_reasoning_text_and_each_shape_of_call(
    by: Any, proxy: RunningProxy, sdk: openai.AsyncOpenAI
) -> None:
    proxy.upstream.will(said(*EVERYTHING))
    found = await by(sdk, input="Go.", tools=[READ, PATCH, AGENTS])
    thought, text, read, patch, spawn = found.output
    assert (thought.type, thought.summary, thought.content[0].text) == ("reasoning", [], "Hm.")
    assert text.content[0].text == "I look."
    assert (read.type, read.name, read.arguments) == ("function_call", "read", '{"path":"a"}')
    assert (spawn.type, spawn.name, spawn.namespace) == ("function_call", "spawn", "agents")
    assert (patch.type, patch.name) == ("custom_tool_call", "apply_patch")
    assert patch.input == "*** Begin Patch\n*** End Patch\n"
    assert [one.call_id for one in (read, patch, spawn)] == ["call_1", "call_2", "call_3"]
    assert {one.status for one in (read, patch, spawn)} == {"completed"}


@each_way
async def test_a_refusal(by: Any, proxy: RunningProxy, sdk: openai.AsyncOpenAI) -> None:
    proxy.upstream.will(said({"refusal": "No."}))
    (item,) = (await by(sdk, input="Hi")).output
    assert item.content[0].refusal == "No."


async def test_a_run_of_the_agents_sdk(proxy: RunningProxy, sdk: openai.AsyncOpenAI) -> None:
    """Unchanged, streamed, with a tool: its default is this protocol."""
    agents = pytest.importorskip("agents")
    agents.set_tracing_disabled(True)
    agents.set_default_openai_client(sdk, use_for_tracing=False)

    def weather(city: str) -> str:
        """The weather in a city."""
        return f"Rain in {city}."

    proxy.upstream.will(
        said({"reasoning_content": "I look."}, OF_OSLO), said({"content": "It rains."})
    )
    tools = [agents.function_tool(weather)]
    agent = agents.Agent(name="Bo", instructions="Be brief.", tools=tools, model="fast")
    run = agents.Runner.run_streamed(agent, "How is Oslo?")
    kinds = [event.type async for event in run.stream_events()]
    assert "run_item_stream_event" in kinds
    assert run.final_output == "It rains."
    first, second = map(messages_of, proxy.upstream.calls)
    assert [message["role"] for message in first] == ["system", "user"]
    assert second[: len(first)] == first
    assert second[-1] == gave("call_1", "Rain in Oslo.")


@each_way
async def test_a_wrong_call_is_mended_before_the_client_sees_it(
    by: Any, proxy: RunningProxy, sdk: openai.AsyncOpenAI
) -> None:
    proxy.upstream.will(BAD, GOOD)
    (item,) = (await by(sdk, input="How is Oslo?", tools=[WEATHER])).output
    assert (item.type, item.name, item.call_id) == ("function_call", "weather", "call_1")
    assert json.loads(item.arguments) == {"city": "Oslo"}


def patching(text: str) -> Reply:
    return said(call("apply_patch", json.dumps({"input": text})))


CUT = "*** Begin Patch\n*** Add File: a\n+a\n"


async def test_a_patch_without_its_frame_is_asked_about_once_and_is_never_an_error(
    proxy: RunningProxy, sdk: openai.AsyncOpenAI
) -> None:
    proxy.upstream.always(patching(CUT))
    found = await sdk.responses.create(model="fast", input="Go.", tools=[PATCH])
    (item,) = found.output
    assert (item.type, getattr(item, "input", "")) == ("custom_tool_call", CUT)
    assert len(proxy.upstream.calls) == 2


async def test_calls_that_stay_wrong_are_400_once(
    proxy: RunningProxy, sdk: openai.AsyncOpenAI
) -> None:
    proxy.upstream.always(BAD)
    with pytest.raises(openai.BadRequestError) as refused:
        await sdk.responses.create(stream=True, **ASKED)
    assert refused.value.response.headers["x-should-retry"] == "false"
    assert refused.value.type == "tool_validation_failed"
    assert len(proxy.upstream.calls) == 2


async def test_a_failure_behind_a_sign_of_life_ends_the_stream_as_one(
    start_proxy: StartProxy,
) -> None:
    proxy = await start_proxy({"stream.keepalive_seconds": 0.2})  # without a retry
    alive = asyncio.Event()
    proxy.upstream.will(Reply.sse(Wait(alive), RESET))
    body, came = {**ASKED, "stream": True}, b""
    async with proxy.client.stream("POST", "/v1/responses", json=body) as response:
        async for piece in response.aiter_bytes():
            came += piece
            alive.set()
    found = events(came)
    assert found[-1]["type"] == "response.failed"
    assert found[-1]["response"]["error"]["code"] == "invalid_prompt"


async def test_the_thread_is_the_session_and_what_is_left_out_is_said(proxy: RunningProxy) -> None:
    proxy.upstream.will(text_stream("Rain."))
    body = {**ASKED, "tools": [WEATHER, {"type": "web_search"}]}
    response = await proxy.client.post("/v1/responses", json=body, headers={"thread-id": "t-1"})
    assert response.headers["x-mlx-stack-session"].startswith("thread-id;")
    assert response.headers["x-mlx-stack-left-out"] == "web_search"


@pytest.mark.parametrize(
    ("method", "path", "status", "word"),
    [
        ("POST", "/v1/responses/compact", 400, "summary"),
        ("GET", "/v1/responses/resp_1", 404, "passthrough_paths"),
        ("POST", "/v1/responses/resp_1/cancel", 404, "passthrough_paths"),
    ],
)
async def test_what_only_a_store_could_answer_goes_to_none(  # noqa: PLR0917
    upstream: ScriptedServer, proxy: RunningProxy, method: str, path: str, status: int, word: str
) -> None:
    headers = {"Authorization": "Bearer the-clients-own"}
    found = await proxy.client.request(method, path, headers=headers)
    assert (found.status_code, upstream.calls) == (status, [])
    assert word in found.json()["error"]["message"]
