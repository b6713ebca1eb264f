"""Three agents of different kinds: an OpenAI SDK's, an Anthropic SDK's, and one that goes round."""

from __future__ import annotations

import asyncio
import json
import sys
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import anthropic
import httpx
import openai

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "deploy" / "local"))

from demo_tiers import questions, tools

from .account import Seen, headers_of

Json = dict[str, Any]
TOOLS: Any = tools.TOOLS
PAUSE_SECONDS, LONG_PAUSE_SECONDS = 0.2, 1.0  # the second after an error
TIMEOUT = 90.0
LAPS = 5  # how often the agent that goes round makes the same call before it begins anew


class Agent:
    """``seen``: its responses so far. ``lost``: requests whose connection broke."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.seen: list[Seen] = []
        self.lost = 0

    async def work(self, one: Callable[[], Awaitable[None]], stop: asyncio.Event) -> None:
        while not stop.is_set():
            try:
                await one()
            except (httpx.TransportError, openai.APIConnectionError, anthropic.APIConnectionError):
                self.lost += 1
            well = self.seen and self.seen[-1].right
            await asyncio.sleep(PAUSE_SECONDS if well else LONG_PAUSE_SECONDS)

    def note(self, response: Any, *, right: bool, tokens: tuple[int, int] = (0, 0)) -> None:
        said = headers_of(response.headers.items())
        self.seen.append(Seen(self.name, response.status_code, said, right, tokens))


def _read(usage: Any) -> int:
    """Tokens that had to be read: those that the server had cached cost nothing."""
    details = getattr(usage, "prompt_tokens_details", None)
    return int(usage.prompt_tokens) - int(getattr(details, "cached_tokens", 0) or 0)


class WithOpenAI(Agent):
    """Asks for tool calls, whole."""

    def __init__(self, url: str) -> None:
        super().__init__("openai-python")
        self._client = openai.AsyncOpenAI(
            base_url=f"{url}/v1", api_key="none", max_retries=0, timeout=TIMEOUT
        )
        self._questions = questions.questions(1, "unseen", 100_000)

    async def one(self) -> None:
        messages: Any = [{"role": "user", "content": next(self._questions).text}]
        try:
            raw = await self._client.chat.completions.with_raw_response.create(
                model="auto", messages=messages, tools=TOOLS, temperature=1.0
            )
        except openai.APIStatusError as error:
            self.note(error.response, right=False)
            return
        usage = raw.parse().usage
        assert usage is not None
        self.note(raw.http_response, right=True, tokens=(_read(usage), usage.completion_tokens))


class WithAnthropic(Agent):
    """Asks in the words of the Messages API."""

    def __init__(self, url: str) -> None:
        super().__init__("anthropic-python")
        self._client = anthropic.AsyncAnthropic(
            base_url=url, api_key="none", max_retries=0, timeout=TIMEOUT
        )
        self._questions = questions.questions(2, "unseen", 100_000)
        functions = [tool["function"] for tool in TOOLS]
        self._tools: Any = [
            {"name": f["name"], "description": f["description"], "input_schema": f["parameters"]}
            for f in functions
        ]

    async def one(self) -> None:
        messages: Any = [{"role": "user", "content": next(self._questions).text}]
        try:
            raw = await self._client.messages.with_raw_response.create(
                model="auto", max_tokens=256, messages=messages, tools=self._tools
            )
        except anthropic.APIStatusError as error:
            self.note(error.response, right=False)
            return
        usage = (await raw.parse()).usage
        self.note(raw.http_response, right=True, tokens=(usage.input_tokens, usage.output_tokens))


class GoesRound(Agent):
    """Streams, and makes one call again and again, whatever comes of it."""

    def __init__(self, url: str) -> None:
        super().__init__("night-looper")
        self._client = httpx.AsyncClient(base_url=url, trust_env=False, timeout=TIMEOUT)
        self._questions = questions.questions(3, "unseen", 100_000)
        self._messages: list[Json] = []
        self._session = ""
        self._call: Json = {}

    async def one(self) -> None:
        if len(self._messages) in (0, 1 + 2 * LAPS):
            question = next(self._questions)
            self._session = str(uuid.uuid4())
            self._messages = [{"role": "user", "content": question.text}]
            self._call = {"name": question.tool, "arguments": json.dumps(question.arguments)}
        await self._ask()
        identity = f"call_{len(self._messages)}"
        call = {"id": identity, "type": "function", "function": self._call}
        self._messages.append({"role": "assistant", "content": None, "tool_calls": [call]})
        result = {"role": "tool", "tool_call_id": identity, "content": '{"status": "pending"}'}
        self._messages.append(result)

    async def _ask(self) -> None:
        headers = {"X-MLX-Stack-Agent": self.name, "X-MLX-Stack-Session": self._session}
        body = {"model": "auto", "stream": True, "tools": TOOLS, "messages": self._messages}
        body["stream_options"] = {"include_usage": True}
        async with self._client.stream(
            "POST", "/v1/chat/completions", json=body, headers=headers
        ) as response:
            said = headers_of(response.headers.items())
            right, tokens = False, (0, 0)
            async for line in _data_lines(response, said):
                found = json.loads(line)
                if "error" in found:
                    right = False
                elif found.get("choices") and found["choices"][0].get("finish_reason"):
                    right = True
                if usage := found.get("usage"):
                    cached = (usage.get("prompt_tokens_details") or {}).get("cached_tokens") or 0
                    tokens = (usage["prompt_tokens"] - cached, usage["completion_tokens"])
            right = right and response.status_code == 200
        self.seen.append(Seen(self.name, response.status_code, said, right, tokens))


async def _data_lines(response: httpx.Response, said: dict[str, str]) -> AsyncIterator[str]:
    """What a stream says; what its comments say beyond the headers goes into ``said``."""
    async for line in response.aiter_lines():
        if line.startswith(": x-mlx-stack "):
            late = json.loads(line.removeprefix(": x-mlx-stack "))
            said.update({name.replace("_", "-"): str(value) for name, value in late.items()})
        elif line.startswith("data: ") and line != "data: [DONE]":
            yield line.removeprefix("data: ")
