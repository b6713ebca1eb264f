"""What holds whichever way the reliability layer runs: before a real LiteLLM, or inside it.

The clients are the real SDK's; the model servers behind LiteLLM say what a test wants.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import uuid
from collections.abc import AsyncIterator

import httpx
import openai
import pytest

from tests.faults.catalogue import (
    BAD_CALL,
    BUDGETS,
    DONE,
    END,
    PER_SESSION,
    ROLE,
    SILENCE_SECONDS,
    TEXT,
    USAGE,
    good,
    settings,
)
from tests.faults.clients import ANSWER, CALL, HALF, TOOLS
from tests.faults.places import Behind, Front
from tests.support.replies import data, text_chunks, usage_chunk
from tests.support.scripted_server import SILENCE, Reply, ScriptedServer, Wait

QUESTION = [{"role": "user", "content": "Where do quokkas live?"}]


@pytest.fixture
async def front(column: Behind) -> AsyncIterator[Front]:
    async with column.proxy({**settings(SILENCE_SECONDS), **BUDGETS}, replies=1) as front:
        yield front


@pytest.fixture
def fast(column: Behind, front: Front) -> ScriptedServer:
    return column.servers["fast"]


@pytest.fixture
def standard(column: Behind, front: Front) -> ScriptedServer:
    return column.servers["standard"]


@pytest.fixture
async def sdk(front: Front) -> AsyncIterator[openai.AsyncOpenAI]:
    session = {"X-MLX-Stack-Session": uuid.uuid4().hex}
    async with openai.AsyncOpenAI(
        base_url=f"{front.client.base_url}/v1",
        api_key=front.key,
        max_retries=0,
        timeout=20,
        default_headers=session,
    ) as sdk:
        yield sdk


async def test_a_bad_call_is_corrected_on_its_tier(
    sdk: openai.AsyncOpenAI, fast: ScriptedServer
) -> None:
    fast.will(BAD_CALL, good(tools=True))
    raw = await sdk.chat.completions.with_raw_response.create(
        model="auto", messages=QUESTION, tools=TOOLS
    )
    calls = raw.parse().choices[0].message.tool_calls
    assert calls is not None
    assert [(call.function.name, call.function.arguments) for call in calls] == [CALL]
    told = {name: raw.headers[f"x-mlx-stack-{name}"] for name in ("tier", "retries", "attempts")}
    assert told == {"tier": "fast", "retries": "1", "attempts": "2"}
    # The correction is in the request that LiteLLM sent on.
    assert "query" in str(fast.calls[-1].json()["messages"][len(QUESTION) :])


async def test_a_call_written_as_text_becomes_one(
    sdk: openai.AsyncOpenAI, fast: ScriptedServer
) -> None:
    name, arguments = CALL
    text = f'<tool_call>{{"name": "{name}", "arguments": {arguments}}}</tool_call>'
    chunks = [data(one) for one in text_chunks(*text.partition(" "))]
    fast.will(Reply.sse(*chunks, data(usage_chunk(USAGE)), DONE))
    stream = await sdk.chat.completions.create(
        model="auto", messages=QUESTION, tools=TOOLS, stream=True
    )
    deltas = [chunk.choices[0].delta async for chunk in stream if chunk.choices]
    assert not any(delta.content for delta in deltas)
    calls = [call.function for delta in deltas for call in delta.tool_calls or ()]
    assert [(call.name, json.loads(call.arguments)) for call in calls] == [
        (name, json.loads(arguments))
    ]


async def test_a_stream_flows(sdk: openai.AsyncOpenAI, fast: ScriptedServer) -> None:
    seen = asyncio.Event()
    fast.will(Reply.sse(ROLE, TEXT, Wait(seen), END, data(usage_chunk(USAGE)), DONE))
    stream = await sdk.chat.completions.create(model="auto", messages=QUESTION, stream=True)
    text = ""
    async for chunk in stream:
        if chunk.choices and chunk.choices[0].delta.content:
            text += chunk.choices[0].delta.content
            seen.set()  # only now does the server go on
    assert text == HALF


@pytest.mark.parametrize("streamed", [True, False], ids=["streamed", "whole"])
async def test_a_client_that_leaves_ends_the_call_upstream(
    front: Front, fast: ScriptedServer, streamed: bool
) -> None:
    answering = asyncio.Event()

    async def answers() -> None:
        answering.set()

    fast.will(Reply.sse(ROLE, TEXT, answers, SILENCE))
    body = {"model": "auto", "messages": QUESTION, "stream": streamed}
    asking = asyncio.create_task(front.client.post("/v1/chat/completions", json=body))
    await answering.wait()
    asking.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await asking
    (call,) = fast.calls
    assert await call.left_within(SILENCE_SECONDS - 1)  # by itself it would be given up later


async def test_a_session_that_has_used_up_its_tokens(
    sdk: openai.AsyncOpenAI, fast: ScriptedServer
) -> None:
    used = {**USAGE, "completion_tokens": PER_SESSION // 5}
    chunks = [data(one) for one in text_chunks(ANSWER)]
    fast.always(Reply.sse(*chunks, data(usage_chunk(used)), DONE))
    with pytest.raises(openai.APIStatusError) as refused:
        for _ in range(6):
            answer = await sdk.chat.completions.create(model="auto", messages=QUESTION)
            assert answer.choices[0].message.content == ANSWER
    assert (refused.value.status_code, refused.value.body["type"]) == (429, "budget_exceeded")
    assert len(fast.calls) in (4, 5)  # what the fifth may use is more than what is left


async def test_another_dialect(front: Front, fast: ScriptedServer) -> None:
    fast.will(BAD_CALL, good(tools=True))
    tool = TOOLS[0]["function"]
    offered = {"name": tool["name"], "input_schema": tool["parameters"]}
    body = {"model": "fast", "max_tokens": 100, "messages": QUESTION, "tools": [offered]}
    session = {"X-MLX-Stack-Session": uuid.uuid4().hex, "x-api-key": front.key}
    response = await front.client.post("/v1/messages", json=body, headers=session)
    assert response.status_code == 200
    answer = response.json()
    assert [one["input"] for one in answer["content"]] == [json.loads(CALL[1])]
    assert (answer["type"], answer["stop_reason"]) == ("message", "tool_use")
    assert response.headers["x-mlx-stack-retries"] == "1"


async def test_what_an_operator_sees(
    front: Front, sdk: openai.AsyncOpenAI, fast: ScriptedServer
) -> None:
    fast.will(BAD_CALL, BAD_CALL)
    raw = await sdk.chat.completions.with_raw_response.create(
        model="auto", messages=QUESTION, tools=TOOLS
    )
    asked = {"request_id": raw.headers["x-mlx-stack-request-id"]}
    events = (await front.client.get("/mlx-stack/events", params=asked)).json()["events"]
    kinds = [event["kind"] for event in events]
    assert kinds == ["tool_call_invalid", "tool_call_invalid", "escalated", "recovered"]
    models = (await front.client.get("/v1/models")).json()["data"]
    assert [one["id"] for one in models] == ["auto", "fast", "standard"]
    assert (await front.client.get("/v1/models/auto")).json()["id"] == "auto"


async def test_what_passes_through(front: Front, fast: ScriptedServer) -> None:
    vector = {"object": "embedding", "index": 0, "embedding": [0.5, 0.25]}
    usage = {"prompt_tokens": 2, "total_tokens": 2}
    fast.will(Reply.json({"object": "list", "model": "m", "data": [vector], "usage": usage}))
    response = await front.client.post("/v1/embeddings", json={"model": "fast", "input": "quokka"})
    assert response.headers["x-mlx-stack-mode"] == "passthrough"
    assert response.json()["data"][0]["embedding"] == vector["embedding"]


async def test_a_key_that_litellm_does_not_know(front: Front, fast: ScriptedServer) -> None:
    body = {"model": "fast", "messages": QUESTION}
    unknown = {"Authorization": "Bearer sk-not-the-one"}
    response = await front.client.post("/v1/chat/completions", json=body, headers=unknown)
    assert (response.status_code, response.json()["error"]["type"]) == (400, "no_db_connection")
    assert not fast.calls


class TestInside:
    """What there is only inside."""

    @pytest.fixture(params=["inside"])
    def column(self, column: Behind) -> Behind:
        return column

    async def test_both_have_metrics(self, front: Front) -> None:
        ours = await front.client.get("/mlx-stack/metrics")
        assert 'mlx_stack_requests_total{outcome="ok",tier="fast"}' in ours.text
        litellms = await front.client.get("/metrics/")
        assert "litellm_proxy_total_requests_metric_total" in litellms.text
        assert "mlx_stack" not in litellms.text

    async def test_nobody_comes_in_without_a_key(self, front: Front, fast: ScriptedServer) -> None:
        body = {"model": "fast", "messages": QUESTION}
        async with httpx.AsyncClient(base_url=front.client.base_url) as client:
            response = await client.post("/v1/chat/completions", json=body)
        assert response.status_code >= 400
        assert not fast.calls

    @pytest.mark.parametrize("path", ["/v1/responses", "/v1/realtime?model=fast"])
    async def test_no_websocket_goes_around_it(self, path: str, front: Front) -> None:
        async with httpx.AsyncClient(base_url=front.client.base_url) as client:
            response = await client.get(
                path,
                headers={
                    "Connection": "Upgrade",
                    "Upgrade": "websocket",
                    "Sec-WebSocket-Version": "13",
                    "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ==",
                },
            )
        assert response.status_code == 426

    async def test_no_route_that_asks_a_model_evades_a_hard_stop(
        self, front: Front, fast: ScriptedServer
    ) -> None:
        used = {**USAGE, "completion_tokens": PER_SESSION // 5}
        chunks = [data(one) for one in text_chunks(ANSWER)]
        fast.always(Reply.sse(*chunks, data(usage_chunk(used)), DONE))
        chat = {"messages": QUESTION}
        headers = {"X-MLX-Stack-Session": uuid.uuid4().hex}
        named = "/engines/fast/chat/completions"
        for _ in range(5):
            response = await front.client.post(named, json=chat, headers=headers)
            assert response.status_code == 200
        text = {"contents": [{"role": "user", "parts": [{"text": "x"}]}]}
        for path, body in (
            (named, chat),
            ("/openai/deployments/fast/chat/completions", chat),
            ("/openai/v1/responses", {"model": "fast", "input": "x"}),
            ("/completions", {"model": "fast", "prompt": "x"}),
            ("/openai/deployments/fast/completions", {"prompt": "x"}),
            ("/embeddings", {"model": "fast", "input": "x"}),
            ("/v1beta/models/fast:generateContent", text),
            ("/interactions", {"model": "fast", "input": "x"}),
            ("/cursor/chat/completions", {"model": "fast", **chat}),
        ):
            response = await front.client.post(path, json=body, headers=headers)
            assert response.status_code == 429, path
        compact = {"model": "fast", "input": "x"}
        response = await front.client.post("/v1/responses/compact", json=compact, headers=headers)
        assert response.status_code == 400
        assert len(fast.calls) == 5
