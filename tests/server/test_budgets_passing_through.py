"""The budgets of what passes through: the same scopes and refusals, usage of every spelling."""

from __future__ import annotations

import asyncio
import json
import re
from typing import Any

import pytest

from mlx_stack_proxy.engine.headers import KEY_HEADERS
from tests.server.asking import ask, checked_error
from tests.server.conftest import StartProxy
from tests.server.counting import AGENT, hard, session_of, waiting
from tests.server.sockets import raw_answer, request
from tests.support.replies import data, text_stream
from tests.support.running_proxy import RunningProxy
from tests.support.scripted_server import Reply, Wait
from tests.support.waiting import until

USAGE = {"prompt_tokens": 60, "total_tokens": 60}
EMBEDDED = Reply.json({"data": [], "usage": USAGE})
CLOUD = "claude-in-the-cloud"  # a model of LiteLLM's that is no tier's


def held(go_on: asyncio.Event) -> Reply:
    body = json.dumps({"usage": USAGE}).encode()
    return Reply(200, (("content-type", "application/json"),), (Wait(go_on), body), "chunked")


async def embed(proxy: RunningProxy, headers: dict[str, str] | None = None) -> Any:
    return await proxy.client.post("/v1/embeddings", json={"input": "Hi"}, headers=headers)


async def test_it_is_counted_before_its_end_is_told(start_proxy: StartProxy) -> None:
    proxy = await start_proxy()
    proxy.upstream.always(lambda _: Reply.sse(data({"usage": USAGE})))
    for number in range(1, 6):
        await embed(proxy, {**AGENT, "accept-encoding": "br, gzip;q=0.8, zstd"})
        assert (await session_of(proxy))["used"] == 60 * number
    assert proxy.upstream.calls[0].header("accept-encoding") == "identity", "for its usage is read"


WORDS = [data({"choices": [{"text": f"word {n}"}]}) for n in range(40)]
SPEECH = Reply(200, (("content-type", "audio/mpeg"),), (b"\xff" * 9000,))
MANY = Reply.json({"data": [], "usage": {"prompt_tokens": 40_000, "total_tokens": 40_000}})


@pytest.mark.parametrize(
    ("path", "asked", "reply", "least", "most"),
    [
        # Without a usage it is estimated.
        ("completions", {"prompt": "x" * 350, "stream": True}, Reply.sse(*WORDS), 140, 152),
        # Many prompts in one request may fill several windows.
        ("embeddings", {"input": ["a " * 20_000] * 2}, MANY, 40_000, 40_000),
        # What no model writes counts nothing.
        ("audio/speech", {"input": "Hi"}, SPEECH, 0, 0),
        ("completions", {"input": "Hi"}, Reply.json({"error": {"message": "no"}}, 500), 0, 0),
    ],
)
async def test_what_a_request_has_used(
    path: str, asked: Any, reply: Reply, least: int, most: int, *, proxy: RunningProxy
) -> None:
    """Usage of every spelling: tests/wire/test_usage_tail.py."""
    proxy.upstream.will(reply)
    await proxy.client.post(f"/v1/{path}", json=asked, headers=AGENT)
    found = (await proxy.client.get("/mlx-stack/sessions/agent-one")).json()
    assert least <= found.get("used", 0) <= most
    assert found.get("estimated", 0) == (0 if least == most else found["used"])


async def test_what_uses_nothing_is_let_through(start_proxy: StartProxy) -> None:
    """A batch that has used up the budget can still be fetched, and one that runs be stopped."""
    proxy = await start_proxy(hard(per_session=60))
    proxy.upstream.always(lambda _: EMBEDDED)
    await embed(proxy, AGENT)
    checked_error(await embed(proxy, AGENT), 429, "budget_exceeded")
    for path in ("batches/b1", "files"):
        assert (await proxy.client.get(f"/v1/{path}", headers=AGENT)).status_code == 200
    for path in ("batches/b1/cancel", "messages/count_tokens", "files", "moderations"):
        assert (await proxy.client.post(f"/v1/{path}", json={}, headers=AGENT)).status_code == 200
    assert (await session_of(proxy))["used"] == 60


@pytest.mark.parametrize("leaves", [False, True])
@pytest.mark.parametrize("speaks", [False, True])
async def test_others_are_waited_for_by_those_who_stay(
    speaks: bool, leaves: bool, start_proxy: StartProxy
) -> None:
    proxy = await start_proxy(hard(per_hour=1000))
    go_on = asyncio.Event()
    proxy.upstream.will(held(go_on), EMBEDDED)
    first = asyncio.create_task(embed(proxy))
    await proxy.upstream.next_call()
    files = {"file": ("speech.wav", b"RIFF" * 1000)}
    spoken = proxy.client.post("/v1/audio/transcriptions", files=files) if speaks else embed(proxy)
    second = asyncio.create_task(spoken)
    await until(lambda: waiting() == 1)
    assert len(proxy.upstream.calls) == 1
    if leaves:
        second.cancel()
        await until(lambda: not waiting())
    go_on.set()
    assert (await first).status_code == 200
    assert leaves or (await second).status_code == 200
    assert len(proxy.upstream.calls) == (1 if leaves else 2)


async def test_one_name_under_several_keys_is_no_session_yet(start_proxy: StartProxy) -> None:
    proxy = await start_proxy({"server.api_keys": ["sk-one", "sk-two"]})
    proxy.upstream.always(lambda _: text_stream("Hello"))
    one, two = ({**AGENT, "Authorization": f"Bearer sk-{n}"} for n in ("one", "two"))
    hashes = []
    for headers in (one, two):
        session = (await ask(proxy, headers)).headers["x-mlx-stack-session"]
        hashes.append(session.partition(";")[2])
    for method in ("GET", "DELETE"):
        response = await proxy.client.request(method, "/mlx-stack/sessions/agent-one")
        error = checked_error(response, 409, "invalid_request_error")
        assert all(found in error["message"] for found in hashes)
    assert (await proxy.client.delete(f"/mlx-stack/sessions/{hashes[0]}")).status_code == 200
    left = (await proxy.client.get("/mlx-stack/sessions/agent-one")).json()["session"]
    assert left.startswith(hashes[1])


async def test_its_session_is_among_the_sessions(start_proxy: StartProxy) -> None:
    """An agent that asks for responses alone is found, and reset, by what the events show of it."""
    proxy = await start_proxy(hard(per_session=60))
    proxy.upstream.always(lambda _: EMBEDDED)
    assert (await embed(proxy, AGENT)).status_code == 200
    checked_error(await embed(proxy, AGENT), 429, "budget_exceeded")
    found = (await proxy.client.get("/mlx-stack/sessions")).json()
    assert found["total"] == 1 and found["sessions"][0]["used"] == 60
    assert found["sessions"][0]["turns"] == 0
    events = (await proxy.client.get("/mlx-stack/events")).json()["events"]
    beginning = events[-1]["session"][:12]
    assert (await proxy.client.delete(f"/mlx-stack/sessions/{beginning}")).status_code == 200
    assert (await embed(proxy, AGENT)).status_code == 200


async def test_its_tokens_are_in_the_metrics(start_proxy: StartProxy) -> None:
    """As the budgets beside them count them: one screen shows both."""
    proxy = await start_proxy()
    proxy.upstream.will(EMBEDDED, text_stream("Hello"))
    await embed(proxy)
    await ask(proxy)
    await proxy.client.get("/v1/files")  # the script has no reply; nothing is used
    hour = (await proxy.client.get("/mlx-stack/status")).json()["budgets"][0]
    metrics = (await proxy.client.get("/metrics")).text
    counted = re.findall(r"mlx_stack_tokens_total\{.*\} (\S+)", metrics)
    assert hour["used"] == sum(map(float, counted)) > 60
    assert 'mlx_stack_tokens_total{direction="input",tier="other"} 60.0' in metrics


async def test_a_count_that_cannot_be_is_an_estimate_and_the_body_stays(
    start_proxy: StartProxy,
) -> None:
    """Which counts: tests/wire/test_usage_tail.py."""
    proxy = await start_proxy(hard(per_hour=10_000))
    reply = Reply.json({"usage": {"prompt_tokens": int("9" * 400), "completion_tokens": 1}})
    proxy.upstream.will(reply)
    response = await embed(proxy, AGENT)
    assert (response.status_code, response.content) == (200, reply.pieces[0])
    found = await session_of(proxy)
    assert 0 < found["used"] == found["estimated"] < 1000


# What a hard stop must not let by


async def test_one_key_is_one_budget_in_whichever_header(start_proxy: StartProxy) -> None:
    proxy = await start_proxy(hard(per_key={"sk-small": {"per_hour": 50}}))
    proxy.upstream.always(lambda _: EMBEDDED)
    assert (await embed(proxy, {"Authorization": "Bearer sk-small"})).status_code == 200
    for name in KEY_HEADERS:
        small = {name: "Bearer sk-small" if name == "authorization" else "sk-small"}
        for response in (await embed(proxy, small), await ask(proxy, small)):
            error = checked_error(response, 429, "budget_exceeded")
            assert (error["scope"], error["used"]) == ("key", 60)
    assert (await embed(proxy, {"Authorization": "Bearer sk-large"})).status_code == 200
    lines = ("connection: close", "x-api-key: sk-small", "x-api-key: sk-other")
    answer = await raw_answer(proxy, request("/v1/embeddings", b'{"input": "Hi"}', *lines))
    assert answer.split(b" ")[1] == b"400", "two servers may each read another of two keys"


@pytest.mark.parametrize("kind", ["application/json", "text/plain", "application/octet-stream", ""])
async def test_a_prompts_bytes_are_set_aside_whatever_its_type(
    kind: str, start_proxy: StartProxy
) -> None:
    proxy = await start_proxy(hard(per_hour=150_000))
    go_on = asyncio.Event()
    proxy.upstream.always(lambda _: held(go_on))
    content, headers = json.dumps({"input": "x" * 90_000}).encode(), {"content-type": kind}
    asking = [
        asyncio.create_task(proxy.client.post("/v1/embeddings", content=content, headers=headers))
        for _ in range(3)
    ]
    await until(lambda: waiting() == 2)
    go_on.set()
    await asyncio.gather(*asking)
    assert len(proxy.upstream.calls) == 3


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("chat/completions", {"messages": [{"role": "user", "content": "x"}], "n": 128}),
        ("completions", {"prompt": "x", "n": 128}),
        ("completions", {"prompt": "x", "best_of": 128}),
        ("completions", {"prompt": ["x"] * 128}),
    ],
)
async def test_what_all_choices_may_write_must_fit(
    path: str, body: dict[str, Any], start_proxy: StartProxy
) -> None:
    proxy = await start_proxy(hard(per_hour=3000))
    proxy.upstream.always(text_stream())
    request = {"model": "fast", "max_tokens": 1000, **body}
    checked_error(await proxy.client.post(f"/v1/{path}", json=request), 429, "budget_exceeded")
    assert proxy.upstream.calls == []
    small = {**request, "max_tokens": 10}
    assert (await proxy.client.post(f"/v1/{path}", json=small)).status_code == 200
