"""``/v1/responses`` through the proxy: guarded like chat completions, each error costs one try."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import openai
import pytest

from tests.server.conftest import StartProxy
from tests.support.replies import chunk, stream, text_stream
from tests.support.running_proxy import RunningProxy
from tests.support.scripted_server import RESET, Reply, ScriptedServer, Wait
from tests.wire.responses.made import call, events
from tests.wire.responses.test_openai_sdk import WEATHER
from tests.wire.responses.test_tools import PATCH

ASKED: dict[str, Any] = {"model": "fast", "input": "How is Oslo?", "tools": [WEATHER]}


def said(name: str, arguments: str) -> Reply:
    return stream(
        [chunk({"role": "assistant"}), chunk(call(name, arguments)), chunk({}, "tool_calls")]
    )


GOOD = said("weather", '{"city":"Oslo"}')
BAD = said("wether", '{"town":"Oslo"}')


@pytest.fixture
async def proxy(start_proxy: StartProxy) -> RunningProxy:
    changes = {"reliability.tool_validation.max_retries": 1, "stream.keepalive_seconds": 0.2}
    return await start_proxy(changes)


def client_of(proxy: RunningProxy) -> openai.AsyncOpenAI:
    http = openai.DefaultAsyncHttpxClient(verify=False)
    return openai.AsyncOpenAI(base_url=f"{proxy.url}/v1", api_key="k", http_client=http)


async def test_a_wrong_call_is_mended_before_the_client_sees_it(proxy: RunningProxy) -> None:
    proxy.upstream.will(BAD, GOOD)
    async with client_of(proxy).responses.stream(**ASKED) as found:
        async for _ in found:
            pass
        (item,) = (await found.get_final_response()).output
    assert (item.type, getattr(item, "arguments", "")) == ("function_call", '{"city":"Oslo"}')


def patching(text: str) -> Reply:
    return said("apply_patch", json.dumps({"input": text}))


CUT = "*** Begin Patch\n*** Add File: a\n+a\n"


async def test_a_patch_without_its_frame_is_asked_about_once_and_is_never_an_error(
    proxy: RunningProxy,
) -> None:
    proxy.upstream.always(patching(CUT))
    found = await client_of(proxy).responses.create(model="fast", input="Go.", tools=[PATCH])
    (item,) = found.output
    assert (item.type, getattr(item, "input", "")) == ("custom_tool_call", CUT)
    assert len(proxy.upstream.calls) == 2


async def test_calls_that_stay_wrong_are_400_once(proxy: RunningProxy) -> None:
    proxy.upstream.always(BAD)
    with pytest.raises(openai.BadRequestError) as refused:
        await client_of(proxy).responses.create(stream=True, **ASKED)
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
