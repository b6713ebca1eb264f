"""Many at once under `hard_stop`: together they overshoot by less than one reply."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable

import httpx
import pytest

from tests.server.asking import ask
from tests.server.conftest import StartProxy
from tests.server.counting import hard
from tests.support.replies import DONE, END, ROLE, TEXT, data
from tests.support.running_proxy import RunningProxy
from tests.support.scripted_server import Call, Reply, ScriptedServer, WhenWhole


def usage_of(call: Call) -> dict[str, int]:
    """A model's that has a token for two characters, and a template of 300."""
    asked = call.json()
    text = json.dumps([asked.get("prompt"), asked.get("messages"), asked.get("response_format")])
    replies = len(asked["prompt"]) if isinstance(asked.get("prompt"), list) else 1
    most = asked["max_tokens"] * replies
    return {"prompt_tokens": 300 + len(text) // 2, "completion_tokens": most}


def saying(usage: dict[str, int]) -> Reply:
    return Reply.sse(ROLE, TEXT, END, data({"choices": [], "usage": usage}), DONE)


COUNTING = WhenWhole(lambda call: saying(usage_of(call)))


def used_by(calls: list[Call]) -> list[int]:
    """The tokens of each."""
    return [sum(usage_of(call).values()) for call in calls]


HEX = "c0ffee" * 400
Asked = Callable[[RunningProxy, str, dict[str, str]], Awaitable[httpx.Response]]


async def chat(proxy: RunningProxy, text: str, headers: dict[str, str]) -> httpx.Response:
    return await ask(proxy, headers, messages=[{"role": "user", "content": text}], max_tokens=50)


async def completes(proxy: RunningProxy, text: str, headers: dict[str, str]) -> httpx.Response:
    asked = {"model": "m", "prompt": text, "max_tokens": 50}
    return await proxy.client.post("/v1/completions", json=asked, headers=headers)


async def in_chunks(proxy: RunningProxy, text: str, headers: dict[str, str]) -> httpx.Response:
    async def parts() -> AsyncIterator[bytes]:
        yield json.dumps({"prompt": text, "max_tokens": 50}).encode()

    kind = {"content-type": "application/json"}
    return await proxy.client.post("/v1/completions", content=parts(), headers=headers | kind)


async def as_text(proxy: RunningProxy, text: str, headers: dict[str, str]) -> httpx.Response:
    asked = json.dumps({"prompt": text, "max_tokens": 50}).encode()
    kind = {"content-type": "text/plain"}
    return await proxy.client.post("/v1/completions", content=asked, headers=headers | kind)


async def at_length(proxy: RunningProxy, text: str, headers: dict[str, str]) -> httpx.Response:
    """More than the proxy's own limit, which holds for chat completions only."""
    asked = {"prompt": text, "max_tokens": 4000}
    return await proxy.client.post("/v1/completions", json=asked, headers=headers)


async def several(proxy: RunningProxy, text: str, headers: dict[str, str]) -> httpx.Response:
    asked = {"prompt": [text] * 5, "max_tokens": 50}
    return await proxy.client.post("/v1/completions", json=asked, headers=headers)


async def by_schema(proxy: RunningProxy, text: str, headers: dict[str, str]) -> httpx.Response:
    schema = {"type": "json_schema", "json_schema": {"name": text}}
    said = [{"role": "user", "content": "Hi"}]
    return await ask(proxy, headers, messages=said, max_tokens=50, response_format=schema)


@pytest.mark.parametrize(
    ("prompt", "asks"),
    [
        *((HEX, asks) for asks in (chat, completes, in_chunks, as_text, several, by_schema)),
        *(("Hi", asks) for asks in (chat, at_length, several)),
    ],
)
async def test_fifty_at_once_overshoot_by_less_than_one_reply(
    prompt: str, asks: Asked, upstream: ScriptedServer, start_proxy: StartProxy
) -> None:
    """However much more upstream counts than an estimate from the prompt's bytes."""
    limit = 30_000
    proxy = await start_proxy(
        {
            **hard(per_hour=limit, max_output_tokens=100),
            "tiers.fast.queue_timeout": 30,
            "tiers.fast.max_concurrency": 50,
        }
    )
    upstream.otherwise = COUNTING

    async def agent(number: int) -> list[int]:
        statuses = []
        while 429 not in statuses and len(statuses) < 100:
            headers = {"X-MLX-Stack-Session": f"agent-{number:04}"}
            statuses.append((await asks(proxy, f"{prompt}{number:02}", headers)).status_code)
        return statuses

    found = await asyncio.gather(*(agent(number) for number in range(50)))
    assert {statuses[-1] for statuses in found} == {429}
    used = used_by(upstream.calls)
    assert limit <= sum(used) < limit + used[0]
