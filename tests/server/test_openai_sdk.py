"""OpenAI's own client against the proxy: it reads the replies, and asks nothing twice."""

from __future__ import annotations

from typing import Any

import openai
import pytest
from openai.types.chat import ChatCompletion

from tests.server.asking import MESSAGES
from tests.support.replies import KINDS, ROLE, TEXT, TOOLS, TOP, data, litellm_error, text_chunks
from tests.support.scripted_server import RESET, Reply, ScriptedServer

Json = dict[str, Any]


def _as_message(payload: Json) -> Json:
    (choice,) = payload["choices"]
    message = {"index": 0, "message": choice["delta"], "finish_reason": choice["finish_reason"]}
    return {**payload, "choices": [message]}


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


async def test_what_would_break_it_comes_in_its_form(
    upstream: ScriptedServer, sdk: openai.AsyncOpenAI
) -> None:
    """Each form: tests/wire/test_chunk_form.py."""
    odd = [data(_as_message(one)) for one in text_chunks("Some words")]
    null = data({**TOP, "choices": None})
    upstream.always(Reply.sse(null, b"data: \n\n", *odd, b"data: {}\n\n", b"data:  [DONE]\n\n"))
    asked: Any = {"model": "fast", "messages": MESSAGES}
    async with sdk.chat.completions.stream(**asked) as stream:
        async for _ in stream:
            pass
        helped = await stream.get_final_completion()
    for reply in (helped, await sdk.chat.completions.create(**asked)):
        message = reply.choices[0].message
        assert (message.role, message.content) == ("assistant", "Some words")
        assert reply.choices[0].finish_reason == "stop"
        ChatCompletion.model_validate(reply.model_dump())  # as pydantic-ai asks of it
    assert reply.usage.total_tokens > 0  # type: ignore[union-attr]


async def test_a_failure_is_not_asked_again_by_the_sdk(
    upstream: ScriptedServer, sdk: openai.AsyncOpenAI
) -> None:
    upstream.always(litellm_error(500, "no"))
    with pytest.raises(openai.InternalServerError) as caught:
        await sdk.chat.completions.create(model="fast", messages=MESSAGES)
    assert caught.value.status_code == 502
    assert caught.value.type == "all_tiers_failed"
    assert len(upstream.calls) == 1


async def test_a_broken_stream_raises(upstream: ScriptedServer, sdk: openai.AsyncOpenAI) -> None:
    upstream.will(Reply.sse(ROLE, TEXT, RESET))
    said = ""
    with pytest.raises(openai.APIError) as caught:
        async for chunk in await sdk.chat.completions.create(
            model="fast", messages=MESSAGES, stream=True
        ):
            said += chunk.choices[0].delta.content or ""
    assert said == "Half an answer"
    assert caught.value.type == "all_tiers_failed"
