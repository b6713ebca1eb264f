"""`/v1/messages`: what its clients meet besides the replies themselves."""

from __future__ import annotations

import asyncio
import gc
import json
from typing import Any

import anthropic
import httpx
import pytest

from tests.server.asking import Json
from tests.server.conftest import StartProxy
from tests.server.sockets import request
from tests.support.messages import call_piece
from tests.support.replies import ROLE, TEXT, litellm_error, stream, text_stream, with_role
from tests.support.running_proxy import RunningProxy
from tests.support.scripted_server import RESET, SILENCE, Reply, ScriptedServer, Wait
from tests.support.waiting import until

PATH = "/v1/messages"
ASKED: Json = {
    "model": "claude-opus-4",
    "max_tokens": 500,
    "messages": [{"role": "user", "content": "Go on."}],
}
TOOL = {"name": "look", "input_schema": {"type": "object", "required": ["at"], "properties": {}}}
SEARCH = {"type": "web_search_20250305", "name": "web_search", "max_uses": 8}


async def ask(proxy: RunningProxy, headers: Json | None = None, **more: Any) -> httpx.Response:
    return await proxy.client.post(PATH, json={**ASKED, **more}, headers=headers)


def events(response: httpx.Response) -> list[Json]:
    """The events of a stream, each named as its data says; comments left out."""
    found = []
    for frame in response.text.split("\n\n"):
        lines = [line for line in frame.split("\n") if line and not line.startswith(":")]
        if lines:
            event, data = lines
            found.append(json.loads(data.removeprefix("data: ")))
            assert event == f"event: {found[-1]['type']}"
    return found


# What goes up


async def test_litellm_sees_a_chat_completion_alone(proxy: RunningProxy) -> None:
    proxy.upstream.will(text_stream())
    betas = {"anthropic-version": "2023-06-01", "anthropic-beta": "some-2025-01-01"}
    reply = await ask(proxy, betas, system="Be short.", thinking={"type": "adaptive"}, new_field=1)
    assert reply.status_code == 200
    call = proxy.upstream.calls[0]
    assert call.target == "/v1/chat/completions"
    assert not [name for name, _ in call.headers if name.startswith("anthropic")]
    body = call.json()
    assert body["model"] == "fast"
    assert body["messages"] == [
        {"role": "system", "content": "Be short."},
        {"role": "user", "content": "Go on."},
    ]
    assert not {"system", "thinking", "new_field"} & body.keys()


# Errors


BAD = call_piece("look", '{"where": 1}')


def bad_call() -> Reply:
    return stream(with_role(BAD, finish="tool_calls"))


async def test_what_the_model_did_wrong_costs_one_try(proxy: RunningProxy) -> None:
    proxy.upstream.always(bad_call())
    for streamed in (False, True):
        reply = await ask(proxy, tools=[TOOL], stream=streamed)
        assert reply.status_code == 424
        assert reply.headers["x-should-retry"] == "false"
        body = reply.json()
        assert (body["type"], body["error"]["type"]) == ("error", "api_error")
        assert body["error"]["details"]["error_code"] == "tool_validation_failed"
        assert body["request_id"] == reply.headers["x-mlx-stack-request-id"]


async def test_an_overflow_is_said_in_the_words_that_make_a_client_compact(
    proxy: RunningProxy,
) -> None:
    proxy.upstream.always(litellm_error(400, "prompt is too long: 9000 tokens > 8000 maximum"))
    reply = await ask(proxy, stream=True)
    assert reply.status_code == 400
    error = reply.json()["error"]
    assert error["type"] == "invalid_request_error"
    assert error["message"] == "prompt is too long: 8001 tokens > 8000 maximum"


async def test_what_is_refused_before_a_model_is_asked(start_proxy: StartProxy) -> None:
    """Each mistake: tests/wire/test_messages_request.py."""
    proxy = await start_proxy({"server.api_keys": ["sk-right"]})
    replies = [
        await ask(proxy, {"x-api-key": "sk-wrong"}),
        await ask(proxy, {"x-api-key": "sk-right"}, tools=["look"]),
        await proxy.client.get(PATH),
    ]
    assert [reply.status_code for reply in replies] == [401, 400, 405]
    assert [reply.json()["type"] for reply in replies] == ["error"] * 3
    types = [reply.json()["error"]["type"] for reply in replies[:2]]
    assert types == ["authentication_error", "invalid_request_error"]
    assert replies[0].headers["x-should-retry"] == "false"
    assert proxy.upstream.calls == []
    assert (await proxy.client.head("/api/hello")).status_code == 404


async def test_a_stream_that_breaks_ends_with_an_error(proxy: RunningProxy) -> None:
    proxy.upstream.will(Reply.sse(ROLE, TEXT, RESET))
    reply = await ask(proxy, stream=True)
    assert reply.status_code == 200
    *_, delta, error = events(reply)
    assert delta["delta"]["text"] == "Half an answer"
    assert error["type"] == "error"
    assert error["error"]["details"]["error_code"] == "all_tiers_failed"


# Signs of life


async def test_a_ping_begins_the_stream(start_proxy: StartProxy) -> None:
    proxy = await start_proxy({"stream.keepalive_seconds": 0.05})
    go_on = asyncio.Event()
    proxy.upstream.will(Reply.sse(Wait(go_on), *text_stream("Here.").pieces))
    async with proxy.client.stream("POST", PATH, json={**ASKED, "stream": True}) as reply:
        seen = b""
        async for part in reply.aiter_bytes():
            seen += part
            if seen.count(b"event: ping") == 2:
                go_on.set()
        assert reply.status_code == 200
    assert seen.startswith(b"event: message_start\n")
    assert seen.count(b"event: message_start") == 1
    assert seen.endswith(b'data: {"type":"message_stop"}\n\n')


async def test_by_default_the_status_stays_free(proxy: RunningProxy) -> None:
    proxy.upstream.will(Reply.sse(SILENCE))
    asking = asyncio.create_task(ask(proxy, stream=True))
    await proxy.upstream.next_call()
    run: Any = next(iter(proxy.services.drivers))
    limits = run._limits
    assert limits._next_sign_at() == limits._exchange.request.started + 240
    asking.cancel()
    await until(lambda: not proxy.services.drivers)


# Names, tokens, models


async def test_a_model_that_is_no_tiers_passes_through_as_it_came(proxy: RunningProxy) -> None:
    proxy.upstream.models = ("fast", "standard", "claude-in-the-cloud")
    proxy.upstream.will(
        Reply.json({"type": "message", "content": []}), Reply.json({"input_tokens": 3})
    )
    content = b'{"model":  "claude-in-the-cloud", "thinking": {"type": "adaptive"}}'
    for path in (f"{PATH}?beta=true", f"{PATH}/count_tokens"):
        reply = await proxy.client.post(
            path,
            content=content,
            headers={"content-type": "application/json", "x-api-key": "sk-mine"},
        )
        assert reply.headers["x-mlx-stack-mode"] == "passthrough"
        call = proxy.upstream.calls[-1]
        assert (call.target, bytes(call.body)) == (path, content)


async def test_while_it_passes_through_its_body_is_free(proxy: RunningProxy) -> None:
    """It no longer counts in the memory for bodies then, and its reply may last for long."""
    proxy.upstream.models = ("fast", "claude-in-the-cloud")
    proxy.upstream.will(Reply.sse(b": begun\n\n", SILENCE))
    content = json.dumps({"model": "claude-in-the-cloud", "messages": [["an odd one"]] * 2000})
    reader, writer = await proxy.raw(request(PATH, content.encode()))
    await reader.readuntil(b": begun")
    assert sum(type(one) is list and one == ["an odd one"] for one in gc.get_objects()) < 10
    writer.close()


async def test_tokens_are_counted_without_a_model(proxy: RunningProxy) -> None:
    odd = [{"type": "document", "source": {"type": "base64", "data": "…"}}, {"type": "new"}]
    body = {**ASKED, "tools": [SEARCH, TOOL], "messages": [{"role": "user", "content": odd}]}
    del body["max_tokens"]
    reply = await proxy.client.post(f"{PATH}/count_tokens?beta=true", json=body)
    assert reply.status_code == 200
    assert reply.json()["input_tokens"] > 10
    assert proxy.upstream.calls == []


async def test_models_in_both_shapes(upstream: ScriptedServer, start_proxy: StartProxy) -> None:
    proxy = await start_proxy({"reliability.escalation.aliases": {"claude-opus-4": "standard"}})
    async with anthropic.AsyncAnthropic(base_url=proxy.url, api_key="local") as claude:
        names = [model.id async for model in claude.models.list()]
        assert names == ["auto", "fast", "standard", "claude-opus-4"]
        assert (await claude.models.retrieve("claude-opus-4")).type == "model"
        with pytest.raises(anthropic.NotFoundError):
            await claude.models.retrieve("nobody")
    assert (await proxy.client.get("/v1/models")).json()["object"] == "list"
