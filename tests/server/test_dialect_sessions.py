"""Sessions of Messages and Responses: what counts as a turn of the task, and what doesn't."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import httpx
import pytest

from tests.server.conftest import StartProxy
from tests.support.replies import stream, text_stream, with_role
from tests.support.running_proxy import RunningProxy
from tests.support.scripted_server import Call, Reply, WhenWhole
from tests.wire.responses.made import call as calling

Json = dict[str, Any]
CLAUDE = {"x-claude-code-session-id": "0000-1111"}
CODEX = {"thread-id": "0000-2222", "session-id": "0000-2222"}
ASKED = "Find out why the build is red."
SCHEMA = {"type": "object", "properties": {"cmd": {"type": "string"}}, "required": ["cmd"]}
ARGUMENTS = {"cmd": "cd x"}
# What only equals what was there before is broken at the fourth time; at once, with no second tier.
RULES = {"reliability.loop_detection": {"on_break": "error", "second_opinion": False}}


def _stuck(call: Call) -> Reply:
    """A model that makes the same call for ever; without tools, it gives the same title."""
    if not call.json().get("tools"):
        return text_stream("A red build")
    piece = calling("bash", json.dumps(ARGUMENTS), call_id=f"call_{len(call.body)}")
    return stream(with_role(piece, finish="tool_calls"))


STUCK = WhenWhole(_stuck)


async def as_claude(proxy: RunningProxy, results: list[str], **more: Any) -> httpx.Response:
    """The turn that follows so many results of the same call; ``is_error``: of each."""
    flag = {"is_error": True} if more.pop("is_error", False) else {}
    messages: list[Json] = [{"role": "user", "content": ASKED}]
    for number, said in enumerate(results):
        use = {"type": "tool_use", "id": f"toolu_{number}", "name": "bash", "input": ARGUMENTS}
        result = {"type": "tool_result", "tool_use_id": f"toolu_{number}", "content": said, **flag}
        messages += [{"role": "assistant", "content": [use]}, {"role": "user", "content": [result]}]
    tools = [{"name": "bash", "input_schema": SCHEMA}]
    body = {"model": "fast", "max_tokens": 99, "messages": messages, "tools": tools, **more}
    return await proxy.client.post("/v1/messages", json=body, headers=CLAUDE)


async def as_codex(proxy: RunningProxy, results: list[str], **more: Any) -> httpx.Response:
    items: list[Json] = [{"role": "user", "content": ASKED}]
    for number, said in enumerate(results):
        name = {"name": "bash", "arguments": json.dumps(ARGUMENTS), "call_id": f"call_{number}"}
        result = {"type": "function_call_output", "call_id": f"call_{number}", "output": said}
        items += [{"type": "function_call", **name}, result]
    tools = [{"type": "function", "name": "bash", "parameters": SCHEMA}]
    body = {"model": "fast", "input": items, "tools": tools, **more}
    return await proxy.client.post("/v1/responses", json=body, headers=CODEX)


Ask = Callable[..., Any]
either = pytest.mark.parametrize(("asks", "status"), [(as_claude, 424), (as_codex, 400)])


@either
@pytest.mark.parametrize("streams", [True, False])
async def test_the_same_request_again_is_a_retry(
    asks: Ask, status: int, streams: bool, start_proxy: StartProxy
) -> None:
    """A client whose stream broke asks again, unstreamed: nothing has come since."""
    proxy = await start_proxy(RULES)
    proxy.upstream.always(STUCK)
    for count in range(3):
        for again in (True, *[streams] * 5):
            reply = await asks(proxy, ["no such file"] * count, stream=again)
            assert reply.status_code == 200
    assert (await asks(proxy, ["no such file"] * 3, stream=streams)).status_code == status


@either
async def test_titles_belong_to_the_session_and_are_no_turns_of_its_task(
    asks: Ask, status: int, start_proxy: StartProxy
) -> None:
    proxy = await start_proxy(RULES)
    proxy.upstream.always(STUCK)
    replies = []
    for count in range(3):
        replies += [await asks(proxy, [], tools=None) for _ in range(3)]
        replies.append(await asks(proxy, ["no such file"] * count))
    assert {reply.status_code for reply in replies} == {200}
    assert not [reply for reply in replies if "x-mlx-stack-loop" in reply.headers]
    assert len({reply.headers["x-mlx-stack-session"] for reply in replies}) == 1
    assert (await asks(proxy, ["no such file"] * 3)).status_code == status


@pytest.mark.parametrize(("is_error", "status"), [(True, 424), (False, 200)])
async def test_an_errors_numbers_are_no_news(
    is_error: bool, status: int, start_proxy: StartProxy
) -> None:
    proxy = await start_proxy(RULES)
    proxy.upstream.always(STUCK)
    results = [f"line {17_871 + 15 * n}: cd: x: not a directory" for n in range(3)]
    for count in range(3):
        reply = await as_claude(proxy, results[:count], is_error=is_error)
        assert reply.status_code == 200
    assert (await as_claude(proxy, results, is_error=is_error)).status_code == status
