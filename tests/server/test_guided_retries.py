"""A bad call is asked again with a schema for the reply, and what comes goes out in any dialect.

Which form a retry has: tests/driver/test_guiding.py; what the schema says:
tests/tool_validation/test_guided.py.
"""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.server.asking import MESSAGES, Json, ask, text_of
from tests.server.calling import BAD, CORRECTION, GOOD, RULES, TOOLS, calling, deltas, messages_of
from tests.server.conftest import StartProxy
from tests.server.polling import metric
from tests.support.replies import litellm_error, text_stream
from tests.support.scripted_server import Call, Reply, ScriptedServer

CHAIN = {
    f"{RULES}.max_retries": 3,
    "reliability.escalation.chain": ["fast"],
    "reliability.token_budget.downgrade_tier": "fast",
}
RETRY = {**CHAIN, "tiers.fast.guided": "retry"}
CALL = json.dumps({"name": "search", "arguments": json.loads(GOOD)}, indent=1)
COUNTED = "mlx_stack_guided_attempts_total"
ANSWER = json.dumps({"answer": "No quokka.\nNone."})


def text(written: str) -> Reply:
    return text_stream(written[:9], written[9:])


def schema_of(call: Call) -> Any:
    return call.json().get("response_format")


@pytest.mark.parametrize("streams", [True, False])
async def test_a_guided_retry_brings_a_real_call(streams: bool, start_proxy: StartProxy) -> None:
    proxy = await start_proxy(RETRY)
    proxy.upstream.will(calling(BAD), text(CALL))
    response = await ask(proxy, tools=TOOLS, stream=streams)
    assert response.status_code == 200 and b"arguments\\" not in response.content
    first, retry = proxy.upstream.calls
    assert schema_of(first) is None and schema_of(retry)["type"] == "json_schema"
    assert messages_of(retry) == MESSAGES, "no correction; the prompt stays as it was"
    assert retry.json()["tools"] == TOOLS
    if streams:
        (call,) = [one for one in deltas(response) if one.get("tool_calls")]
        function = call["tool_calls"][0]["function"]
        assert text_of(response.content) == ""
    else:
        (choice,) = response.json()["choices"]
        assert choice["finish_reason"] == "tool_calls"
        function = choice["message"]["tool_calls"][0]["function"]
        assert response.headers["x-mlx-stack-repairs"] == "guided"
    assert function["name"] == "search" and json.loads(function["arguments"]) == json.loads(GOOD)
    assert await metric(proxy, COUNTED, tier="fast", result="obeyed") == 1


@pytest.mark.parametrize("streams", [True, False])
@pytest.mark.parametrize(
    ("path", "asked"),
    [
        ("/v1/chat/completions", {"messages": MESSAGES, "tools": TOOLS}),
        (
            "/v1/messages",
            {
                "messages": MESSAGES,
                "max_tokens": 99,
                "tools": [{"name": "search", "input_schema": {"type": "object"}}],
            },
        ),
        (
            "/v1/responses",
            {
                "input": "Say hello.",
                "tools": [{"type": "function", "name": "search", "parameters": {"type": "object"}}],
            },
        ),
    ],
)
async def test_a_guided_answer_is_plain_text_in_each_dialect(
    path: str, asked: Json, streams: bool, start_proxy: StartProxy
) -> None:
    proxy = await start_proxy(RETRY)
    proxy.upstream.will(calling("{", name="search"), text(ANSWER))
    body = {"model": "fast", "stream": streams, **asked}
    response = await proxy.client.post(path, json=body)
    assert response.status_code == 200
    assert r"No quokka.\nNone." in response.text and "answer" not in response.text
    assert len(proxy.upstream.calls) == 2


async def test_a_tier_that_is_not_known_gets_the_correction_as_well(
    start_proxy: StartProxy,
) -> None:
    """So that a server which ignores the schema costs nothing; one that obeys is known by then."""
    proxy = await start_proxy(CHAIN)
    proxy.upstream.will(calling(BAD), text(CALL), calling(BAD), text(CALL))
    for _ in range(2):
        assert (await ask(proxy, tools=TOOLS)).status_code == 200
    probe, known = proxy.upstream.calls[1], proxy.upstream.calls[3]
    assert schema_of(probe) == schema_of(known) is not None
    assert CORRECTION in messages_of(probe)[-1]["content"]
    assert messages_of(known) == MESSAGES


@pytest.mark.parametrize("status", [400, 422, 500])
async def test_a_refusal_costs_no_retry_and_is_remembered(
    status: int, start_proxy: StartProxy
) -> None:
    proxy = await start_proxy({**CHAIN, f"{RULES}.max_retries": 1})
    proxy.upstream.will(
        calling(BAD), litellm_error(status, "failed to parse grammar"), calling(GOOD),
        calling(BAD), calling(GOOD),
    )  # fmt: skip
    for _ in range(2):
        assert (await ask(proxy, tools=TOOLS)).status_code == 200
    asked = [schema_of(call) is not None for call in proxy.upstream.calls]
    assert asked == [False, True, False, False, False]
    assert CORRECTION in messages_of(proxy.upstream.calls[2])[-1]["content"]
    assert await metric(proxy, COUNTED, tier="fast", result="refused") == 1


@pytest.mark.parametrize(
    ("guided", "replies", "asked"),
    [
        (
            "auto",
            [calling(BAD), text("I would search."), calling(BAD), calling(GOOD)],
            [False, True, False, False],
        ),
        (
            "always",
            [litellm_error(400, "unsupported"), calling(GOOD), calling(GOOD)],
            [True, False, False],
        ),
    ],
    ids=["a disregard", "a refusal under `always`"],
)
async def test_it_is_not_tried_again_where_it_brings_nothing(
    guided: str, replies: list[Reply], asked: list[bool], start_proxy: StartProxy
) -> None:
    proxy = await start_proxy({**CHAIN, "tiers.fast.guided": guided})
    proxy.upstream.will(*replies)
    for _ in range(2):
        assert (await ask(proxy, tools=TOOLS)).status_code == 200
    assert [schema_of(call) is not None for call in proxy.upstream.calls] == asked


@pytest.mark.parametrize(
    "more",
    [
        {"response_format": {"type": "json_object"}},
        {"n": 2},
        {"tools": [*TOOLS, {"type": "custom", "custom": {"name": "patch"}}]},
    ],
)
async def test_what_the_client_asks_for_excludes_it(more: Json, start_proxy: StartProxy) -> None:
    proxy = await start_proxy(RETRY)
    proxy.upstream.will(calling(BAD))
    proxy.upstream.always(calling(GOOD))
    await ask(proxy, **{"tools": TOOLS, **more})
    assert len(proxy.upstream.calls) > 1
    assert all(schema_of(call) == more.get("response_format") for call in proxy.upstream.calls)


async def test_text_that_has_gone_out_excludes_it(start_proxy: StartProxy) -> None:
    proxy = await start_proxy(RETRY)
    proxy.upstream.will(calling(BAD, {"content": "Let me search for it."}), calling(GOOD))
    response = await ask(proxy, tools=TOOLS, stream=True)
    assert "Let me search" in text_of(response.content)
    assert [schema_of(call) for call in proxy.upstream.calls] == [None, None]


async def test_always_guides_the_first_request(
    upstream: ScriptedServer, start_proxy: StartProxy
) -> None:
    always = await start_proxy({**CHAIN, "tiers.fast.guided": "always"})
    upstream.will(text(CALL), text_stream("Hi."))
    response = await ask(always, tools=TOOLS)
    assert response.json()["choices"][0]["message"]["tool_calls"]
    assert response.headers["x-mlx-stack-attempts"] == "1"
    await ask(always)
    assert [schema_of(call) is not None for call in upstream.calls] == [True, False]
