"""A client that asks for no stream gets what a server that doesn't stream would have sent."""

from __future__ import annotations

import pytest

from tests.server.asking import ask, body
from tests.server.conftest import StartProxy
from tests.support import replies
from tests.support.replies import KINDS, TOOLS
from tests.support.running_proxy import RunningProxy
from tests.support.scripted_server import Reply, ScriptedServer


@pytest.mark.parametrize("name", KINDS)
async def test_every_kind_is_assembled_exactly(
    name: str, upstream: ScriptedServer, proxy: RunningProxy
) -> None:
    kind = KINDS[name]
    upstream.will(kind.stream())
    response = await ask(proxy, **(kind.request or {}))
    assert response.status_code == 200
    assert response.headers["content-type"].startswith("application/json")
    assert response.json() == kind.completion


@pytest.mark.parametrize("name", KINDS)
async def test_a_json_answer_is_kept_as_it_is(
    name: str, upstream: ScriptedServer, proxy: RunningProxy
) -> None:
    kind = KINDS[name]
    upstream.will(Reply.json(kind.completion))
    response = await ask(proxy, **(kind.request or {}))
    assert response.json() == kind.completion


async def test_upstream_is_asked_for_a_stream_with_usage(
    upstream: ScriptedServer, proxy: RunningProxy
) -> None:
    upstream.will(replies.text_stream())
    await ask(proxy)
    sent = upstream.calls[0].json()
    assert sent["stream"] is True
    assert sent["stream_options"] == {"include_usage": True}


async def test_as_requested_asks_for_what_the_client_asked(
    upstream: ScriptedServer, start_proxy: StartProxy
) -> None:
    proxy = await start_proxy({"upstream.stream": "as_requested"})
    upstream.will(Reply.json(KINDS["text"].completion))
    response = await ask(proxy)
    assert response.json() == KINDS["text"].completion
    assert not upstream.calls[0].json().get("stream")
    assert "stream_options" not in upstream.calls[0].json()


async def test_what_the_proxy_does_not_know_reaches_upstream(
    upstream: ScriptedServer, proxy: RunningProxy
) -> None:
    upstream.will(replies.text_stream())
    request = body(
        tools=TOOLS, temperature=0.3, seed=7, metadata={"run": "1"}, new_thing={"deep": [1, None]}
    )
    request["messages"] = [
        {"role": "system", "content": "Be kind.", "name": "sys"},
        {"role": "user", "content": [{"type": "text", "text": "Hi"}], "odd": True},
    ]
    await ask(proxy, **request)
    sent = upstream.calls[0].json()
    for key in ("tools", "temperature", "seed", "metadata", "new_thing", "messages", "model"):
        assert sent[key] == request[key]


async def test_functions_become_tools_and_their_calls_come_back_as_function_call(
    upstream: ScriptedServer, proxy: RunningProxy
) -> None:
    """The older spelling; the tiers behind only know the newer."""
    upstream.always(lambda _: KINDS["tool_call_whole"].stream())
    asked = {"functions": replies.FUNCTIONS, "function_call": {"name": "get_weather"}}
    response = await ask(proxy, **asked)
    sent = upstream.calls[0].json()
    assert [tool["function"] for tool in sent["tools"]] == replies.FUNCTIONS
    assert sent["tool_choice"] == {"type": "function", "function": {"name": "get_weather"}}
    assert "functions" not in sent
    choice = response.json()["choices"][0]
    assert choice["message"]["function_call"] == replies.WEATHER["function"]
    assert "tool_calls" not in choice["message"]
    assert choice["finish_reason"] == "function_call"
