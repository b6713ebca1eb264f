"""OpenAI's own client against the proxy: it reads the replies, and asks nothing twice."""

from __future__ import annotations

import openai
import pytest

from tests.shell.asking import MESSAGES
from tests.support.replies import KINDS, TOOLS, USAGE, data, litellm_error, text_chunks, text_stream
from tests.support.scripted_server import RESET, SILENCE, Reply, ScriptedServer

ROLE, TEXT, END = (data(one) for one in text_chunks("Some words"))


async def test_whole(upstream: ScriptedServer, sdk: openai.AsyncOpenAI) -> None:
    upstream.will(KINDS["tool_calls_split"].stream())
    reply = await sdk.chat.completions.create(model="auto", messages=MESSAGES, tools=TOOLS)
    calls = reply.choices[0].message.tool_calls
    assert [(call.function.name, call.function.arguments) for call in calls] == [
        ("get_weather", '{"city": "Oslo"}'),
        ("get_time", '{"zone": "CET", "at": null}'),
    ]
    assert reply.usage.model_dump(exclude_none=True) == USAGE


async def test_streamed(upstream: ScriptedServer, sdk: openai.AsyncOpenAI) -> None:
    upstream.will(text_stream("One ", "two"))
    stream = await sdk.chat.completions.create(model="fast", messages=MESSAGES, stream=True)
    said = [chunk.choices[0].delta.content or "" async for chunk in stream]
    assert "".join(said) == "One two"


async def test_the_streaming_helper_assembles_tool_calls(
    upstream: ScriptedServer, sdk: openai.AsyncOpenAI
) -> None:
    upstream.will(KINDS["tool_calls_split"].stream())
    strict = [{**tool, "function": {**tool["function"], "strict": True}} for tool in TOOLS]
    manager = sdk.chat.completions.stream(model="fast", messages=MESSAGES, tools=strict)
    async with manager as stream:
        async for _ in stream:
            pass
        final = await stream.get_final_completion()
    assert [call.function.name for call in final.choices[0].message.tool_calls] == [
        "get_weather",
        "get_time",
    ]


async def test_raw_response_headers(upstream: ScriptedServer, sdk: openai.AsyncOpenAI) -> None:
    upstream.will(text_stream())
    raw = await sdk.chat.completions.with_raw_response.create(model="fast", messages=MESSAGES)
    assert raw.headers["x-mlx-stack-tier"] == "fast"
    assert raw.request_id == raw.headers["x-mlx-stack-request-id"]


async def test_models(sdk: openai.AsyncOpenAI) -> None:
    assert [model.id async for model in sdk.models.list()][:3] == ["auto", "fast", "standard"]


async def test_a_failure_is_not_asked_again_by_the_sdk(
    upstream: ScriptedServer, sdk: openai.AsyncOpenAI
) -> None:
    upstream.always(litellm_error(500, "no"))
    with pytest.raises(openai.InternalServerError) as caught:
        await sdk.chat.completions.create(model="fast", messages=MESSAGES)
    assert caught.value.status_code == 502
    assert caught.value.type == "all_tiers_failed"
    assert len(upstream.calls) == 1


async def test_bad_input_is_a_bad_request(
    upstream: ScriptedServer, sdk: openai.AsyncOpenAI
) -> None:
    with pytest.raises(openai.BadRequestError) as caught:
        await sdk.chat.completions.create(model="fast", messages=[])
    assert caught.value.param == "messages"
    assert upstream.calls == []


async def test_a_broken_stream_raises(upstream: ScriptedServer, sdk: openai.AsyncOpenAI) -> None:
    upstream.will(Reply.sse(ROLE, TEXT, RESET))
    said = ""
    with pytest.raises(openai.APIError) as caught:
        async for chunk in await sdk.chat.completions.create(
            model="fast", messages=MESSAGES, stream=True
        ):
            said += chunk.choices[0].delta.content or ""
    assert said == "Some words"
    assert caught.value.type == "all_tiers_failed"


async def test_closing_a_stream_stops_the_model(
    upstream: ScriptedServer, sdk: openai.AsyncOpenAI
) -> None:
    upstream.will(Reply.sse(ROLE, TEXT, SILENCE))
    async with await sdk.chat.completions.create(
        model="fast", messages=MESSAGES, stream=True
    ) as stream:
        async for chunk in stream:
            if chunk.choices[0].delta.content:
                break
    assert await (await upstream.next_call()).left_within(1)
