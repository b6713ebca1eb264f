"""What steers LiteLLM is not sent on, and a client's own timeout harms nobody else."""

from __future__ import annotations

from typing import Any

import pytest

from tests.server.asking import CHAT, ask, body, checked_error
from tests.server.conftest import StartProxy
from tests.support.replies import litellm_error, text_stream
from tests.support.running_proxy import RunningProxy
from tests.support.scripted_server import SILENCE, Call, Reply, WhenWhole

KEYS = {"server.api_keys": ["a-client", "another"]}
CLIENT = {"Authorization": "Bearer a-client"}
BREAKS_AT_THREE = {"reliability.escalation.degrade": {"failures": 3}}
HEADER = {"x-litellm-timeout": "0.001"}


def like_litellm(call: Call) -> Reply:
    """It obeys what steers it, as LiteLLM does; how it fails then stands in its answers."""
    asked = call.json()
    if any(name.startswith("mock_") for name in asked):
        return litellm_error(500, "litellm.InternalServerError: mocked")
    names = {"timeout", "request_timeout", "stream_timeout"}
    if names & set(asked) or call.header("x-litellm-timeout"):
        return litellm_error(408, "litellm.Timeout")
    if {"api_base", "base_url", "api_key", "fallbacks", "model_list"} & set(asked):
        return litellm_error(500, "litellm.InternalServerError: Connection error.")
    return text_stream()


async def state_of(proxy: RunningProxy) -> str:
    tiers = (await proxy.client.get("/ready")).json()["tiers"]
    return str(tiers["fast"]["state"])


@pytest.mark.parametrize(
    ("fields", "headers"),
    [
        ({"mock_response": "x", "api_base": "http://127.0.0.1:1", "fallbacks": ["nothing"]}, {}),
        ({"timeout": 0.001}, {}),
        ({}, HEADER),
    ],
    ids=["steered", "hurried", "hurried by a header"],
)
async def test_three_requests_degrade_no_tier(
    fields: dict[str, Any], headers: dict[str, str], start_proxy: StartProxy
) -> None:
    proxy = await start_proxy({**KEYS, **BREAKS_AT_THREE})
    proxy.upstream.always(WhenWhole(like_litellm))
    for _ in range(3):
        await ask(proxy, {**CLIENT, **headers}, **fields)
    assert await state_of(proxy) == "ok"
    assert (await ask(proxy, {"Authorization": "Bearer another"})).status_code == 200


async def test_it_goes_up_by_no_field_and_no_header(proxy: RunningProxy) -> None:
    """Also with a key of the client's own: the breaker is everybody's."""
    proxy.upstream.will(text_stream())
    said = {"x-litellm-timeout": "60", "x-litellm-num-retries": "9", "litellm-x": "1"}
    fields = {"timeout": 60, "num_retries": 9, "api_base": "x", "top_k": 5, "user": "u"}
    metadata = {"user_id": "u", "tags": ["cloud"]}
    await ask(proxy, {**CLIENT, **said}, metadata=metadata, **fields)
    (call,) = proxy.upstream.calls
    sent = call.json()
    assert {"top_k": 5, "user": "u", "metadata": {"user_id": "u"}}.items() <= sent.items()
    assert (sent["num_retries"], sent["disable_fallbacks"]) == (0, True)
    assert not {"timeout", "api_base"} & set(sent)
    theirs = [name for name, _ in call.headers if "litellm" in name]
    assert theirs == ["x-litellm-call-id"]


@pytest.mark.parametrize(
    ("headers", "fields"),
    [({"x-litellm-timeout": "0.3"}, {}), ({}, {"timeout": 0.3, "stream": True})],
    ids=["header", "field"],
)
async def test_a_clients_timeout_is_our_deadline(
    headers: dict[str, str], fields: dict[str, Any], start_proxy: StartProxy
) -> None:
    proxy = await start_proxy({"reliability.escalation.degrade": {"failures": 1}})
    proxy.upstream.always(Reply.sse(SILENCE))
    response = await ask(proxy, headers, **fields)
    error = checked_error(response, 504, "all_tiers_failed")
    assert "the request's own `timeout`" in error["message"]
    assert [one["reason"] for one in error["attempts"]] == ["timeout"]
    assert await proxy.upstream.calls[0].left_within(10)
    assert await state_of(proxy) == "ok"


async def test_what_passes_through_has_it_too(
    start_proxy: StartProxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LITELLM_MASTER_KEY", "sk-master")
    proxy = await start_proxy(KEYS)
    proxy.upstream.always(lambda _: Reply.raw(SILENCE))
    asked = {"model": "m", "input": "x", "timeout": 0.3}
    response = await proxy.client.post("/v1/completions", json=asked, headers=CLIENT)
    checked_error(response, 504, "all_tiers_failed")
    assert await proxy.upstream.calls[0].left_within(10)
    assert "timeout" not in proxy.upstream.calls[0].json()


async def test_with_another_key_what_passes_through_is_litellms_to_time(
    proxy: RunningProxy,
) -> None:
    proxy.upstream.will(Reply.json({"ok": True}))
    asked = {"model": "m", "input": "x", "timeout": 1e-9}
    response = await proxy.client.post("/v1/completions", json=asked, headers={**CLIENT, **HEADER})
    assert response.status_code == 200
    assert proxy.upstream.calls[0].json() == asked
    assert proxy.upstream.calls[0].header("x-litellm-timeout") == "0.001"


async def test_chat_completions_take_no_model_of_the_query(proxy: RunningProxy) -> None:
    proxy.upstream.will(text_stream())
    await proxy.client.post(f"{CHAT}?model=cloud", json=body())
    assert proxy.upstream.calls[0].target == CHAT
