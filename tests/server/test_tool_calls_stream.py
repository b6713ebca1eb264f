"""Streams with tools offered: prose flows at once, calls written as text come out as calls."""

from __future__ import annotations

import asyncio
import json

import openai
import pytest

from tests.server.asking import CHAT, MESSAGES, WITH_USAGE, ask, body, text_of
from tests.server.calling import calling
from tests.server.conftest import StartProxy
from tests.server.polling import metric
from tests.support.replies import DONE, USAGE, chunk, data, text_stream
from tests.support.running_proxy import RunningProxy
from tests.support.scripted_server import Reply, ScriptedServer, Wait
from tests.tool_validation.calls import SEARCH
from tests.tool_validation.test_schema_odd import LARGE, TOO_LARGE
from tests.tool_validation.test_text_samples import SAMPLES, SCHEMAS

TOOLS = [
    {"type": "function", "function": {"name": name, "parameters": schema}}
    for name, schema in SCHEMAS.items()
]
CALL = '<tool_call>{"name": "search", "arguments": {"query": "x"}}</tool_call>'


async def test_text_before_a_call_does_not_wait_for_the_next_chunk(proxy: RunningProxy) -> None:
    """Which text flows: tests/tool_validation/test_text_streams.py."""
    event = asyncio.Event()
    one = chunk({"role": "assistant", "content": "Let me look. "})
    last = [chunk({"content": CALL[:9]}), chunk({"content": CALL[9:]}), chunk({}, "stop")]
    usage_in_every_chunk = {**one, "usage": USAGE}
    proxy.upstream.will(Reply.sse(data(usage_in_every_chunk), Wait(event), *map(data, last), DONE))
    asked = body(tools=[SEARCH], **WITH_USAGE)
    async with proxy.client.stream("POST", CHAT, json=asked) as response:
        parts = response.aiter_raw()
        came = await anext(parts)
        assert json.loads(came.removeprefix(b"data: "))["choices"] == one["choices"]
        event.set()
        after = b"".join([part async for part in parts])
    assert text_of(after) == ""
    assert after.count(b'"tool_calls":[') == 1


@pytest.mark.parametrize(
    ("name", "before", "said"),
    [
        ("react", "I look it up.\n", "I look it up.\nThought: look it up.\n"),
        ("bare_json", "", ""),
    ],
)
async def test_a_call_written_as_text_comes_out_as_a_real_call(
    name: str, before: str, said: str, upstream: ScriptedServer, sdk: openai.AsyncOpenAI
) -> None:
    text = SAMPLES[name][0]
    upstream.will(text_stream(before, *(text[at : at + 4] for at in range(0, len(text), 4))))
    seen = [
        choice
        async for one in await sdk.chat.completions.create(
            model="fast",
            messages=MESSAGES,
            tools=TOOLS,  # type: ignore[arg-type]
            stream=True,
        )
        for choice in one.choices
    ]
    (call,) = [call for choice in seen for call in choice.delta.tool_calls or ()]
    assert (call.index, call.type) == (0, "function")
    assert call.id
    assert call.function is not None
    assert call.function.name == "find_book"
    assert json.loads(call.function.arguments or "") == {"title": "Momo", "year": 1973}
    assert [one.finish_reason for one in seen if one.finish_reason] == ["tool_calls"]
    assert "".join(one.delta.content or "" for one in seen) == said


# A schema that costs too much to check


async def test_an_unchecked_call_is_counted(start_proxy: StartProxy) -> None:
    proxy = await start_proxy()
    arguments = json.dumps(TOO_LARGE)
    proxy.upstream.will(calling(arguments, name="f"))
    tools = [{"type": "function", "function": {"name": "f", "parameters": LARGE}}]
    response = await ask(proxy, tools=tools)
    message = response.json()["choices"][0]["message"]
    assert message["tool_calls"][0]["function"]["arguments"] == arguments
    assert await metric(proxy, "mlx_stack_unchecked_tool_calls_total") == 1


@pytest.mark.parametrize("stream", [False, True])
async def test_where_no_tools_are_offered_a_call_is_its_text(
    stream: bool, proxy: RunningProxy
) -> None:
    proxy.upstream.always(calling('{"order_id": "ord_NDlL"}', name="get_order"))
    for path, more in (
        ("/v1/chat/completions", {"messages": MESSAGES}),
        ("/v1/messages", {"messages": MESSAGES, "max_tokens": 99}),
        ("/v1/responses", {"input": "Look up order ord_NDlL."}),
    ):
        asked = {"model": "fast", "stream": stream, **more}
        answer = await proxy.client.post(path, json=asked)
        assert answer.status_code == 200, path
        said = answer.text.replace("\\", "")
        assert '{"name":"get_order","arguments":{"order_id":"ord_NDlL"}}' in said
        assert "tool_use" not in said and "function_call" not in said
    assert len(proxy.upstream.calls) == 3, "asked once each"
