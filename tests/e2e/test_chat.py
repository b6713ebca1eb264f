"""What any OpenAI client does, with the official SDK."""

from __future__ import annotations

import asyncio
import shlex
import subprocess
from typing import Any

import httpx
import openai
import pytest

from .running_stack import RunningStack

QUESTION: Any = [{"role": "user", "content": "Who are you?"}]
ANSWER = "demo model"


def test_a_reply_is_the_same_whole_and_streamed(client: openai.OpenAI) -> None:
    asked: Any = {"model": "standard", "messages": QUESTION, "temperature": 0}
    whole = client.chat.completions.create(**asked)
    text = whole.choices[0].message.content or ""
    assert ANSWER in text
    assert whole.choices[0].finish_reason == "stop"
    assert whole.usage.completion_tokens > 0
    chunks = list(client.chat.completions.create(**asked, stream=True))
    choices = [chunk.choices[0] for chunk in chunks if chunk.choices]
    assert "".join(choice.delta.content or "" for choice in choices) == text
    assert [c.finish_reason for c in choices if c.finish_reason] == ["stop"]
    assert all(chunk.usage is None for chunk in chunks), "usage was not asked for"


async def test_a_stream_with_usage(async_client: openai.AsyncOpenAI) -> None:
    stream = await async_client.chat.completions.create(
        model="standard",
        messages=QUESTION,
        stream=True,
        stream_options={"include_usage": True},
    )
    chunks = [chunk async for chunk in stream]
    assert ANSWER in "".join(c.choices[0].delta.content or "" for c in chunks if c.choices)
    assert [chunk.usage.completion_tokens > 0 for chunk in chunks if chunk.usage] == [True]


async def test_parallel_clients(async_client: openai.AsyncOpenAI, stack: RunningStack) -> None:
    async def ask(number: int) -> str:
        tier = ("standard", "fast")[number % 4 == 3]
        if number % 2:
            reply = await async_client.chat.completions.create(
                model=tier, messages=QUESTION, max_tokens=60
            )
            return str(reply.choices[0].message.content)
        stream = await async_client.chat.completions.create(
            model=tier, messages=QUESTION, max_tokens=60, stream=True
        )
        return "".join([c.choices[0].delta.content or "" async for c in stream if c.choices])

    before = stack.metric("mlx_stack_requests_total", outcome="ok", tier="standard")
    answers = await asyncio.gather(*(ask(number) for number in range(24)))
    right = [a for number, a in enumerate(answers) if number % 4 != 3]
    assert all(ANSWER in answer for answer in right)
    after = stack.metric("mlx_stack_requests_total", outcome="ok", tier="standard")
    assert after - before == len(right)
    for tier in ("fast", "standard"):
        assert stack.metric("mlx_stack_in_flight", tier=tier) == 0


def test_the_two_exports_it_prints_are_enough(
    stack: RunningStack, monkeypatch: pytest.MonkeyPatch
) -> None:
    for line in stack.said.splitlines():
        if line.startswith("  export "):
            name, value = line.removeprefix("  export ").split("=", 1)
            monkeypatch.setenv(name, value)
    with openai.OpenAI() as client:
        assert [model.id for model in client.models.list()][:3] == ["auto", "fast", "standard"]


def test_the_status_command_it_prints_finds_the_proxy(stack: RunningStack) -> None:
    (line,) = (line for line in stack.said.splitlines() if " status --watch" in line)
    words = [word for word in shlex.split(line) if word != "--watch"]
    done = subprocess.run(words, capture_output=True, text=True, timeout=60, check=True)
    assert f"at {stack.url}, up" in done.stdout


def test_the_path_without_v1(stack: RunningStack) -> None:
    body = {"model": "standard", "messages": QUESTION}
    reply = httpx.post(f"{stack.url}/chat/completions", json=body, timeout=60)
    assert reply.status_code == 200
    assert ANSWER in reply.json()["choices"][0]["message"]["content"]
