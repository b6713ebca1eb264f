"""Agents of different kinds: of chat completions, of Messages, and one that loops."""

from __future__ import annotations

import asyncio
import json
import sys
import uuid
from pathlib import Path
from typing import Any

import httpx

from tests.faults.clients import read
from tests.faults.spoken import CHAT, MESSAGES, SPOKEN

from .account import Seen

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "deploy" / "local"))

from demo_tiers import questions, tools

Json = dict[str, Any]
PAUSE_SECONDS, LONG_PAUSE_SECONDS = 0.2, 1.0  # the second after an error
TIMEOUT = 90.0
LAPS = 5  # how often the agent that loops makes the same call before it starts over


class Agent:
    """``seen``: its responses so far. ``lost``: requests whose connection broke."""

    def __init__(self, name: str, url: str, seed: int, speaks: str = CHAT) -> None:
        self.name = name
        self.seen: list[Seen] = []
        self.lost = 0
        self.questions = questions.questions(seed, "unseen", 100_000)
        self._speaks = speaks
        self._http = httpx.AsyncClient(base_url=url, trust_env=False, timeout=TIMEOUT)

    async def work(self, stop: asyncio.Event) -> None:
        while not stop.is_set():
            try:
                await self.one()
            except httpx.TransportError:
                self.lost += 1
            well = self.seen and self.seen[-1].right
            await asyncio.sleep(PAUSE_SECONDS if well else LONG_PAUSE_SECONDS)

    async def one(self) -> None:
        """Ask for a tool call, whole."""
        await self.ask([{"role": "user", "content": next(self.questions).text}])

    async def ask(self, messages: list[Json], session: str = "", **more: Any) -> None:
        chat = {"model": "auto", "messages": messages, "tools": tools.TOOLS, **more}
        headers = {"X-MLX-Stack-Agent": self.name}
        if session:
            headers["X-MLX-Stack-Session"] = session
        spoken = SPOKEN[self._speaks]
        response = await self._http.post(spoken.path, json=spoken.asks(chat), headers=headers)
        found = read(response, speaks=self._speaks)
        said = {name.replace("_", "-"): str(value) for name, value in found.said.items()}
        right = response.status_code == 200 and found.error is None and bool(found.finish)
        self.seen.append(Seen(self.name, response.status_code, said, right, tokens_of(response)))


def tokens_of(response: httpx.Response) -> tuple[int, int]:
    """Read and written, as the usage says; those that the server had cached cost nothing."""
    lines = [line.removeprefix("data: ") for line in response.text.splitlines()]
    bodies = [json.loads(line) for line in lines if line.startswith("{")]
    usage: Json = next((one["usage"] for one in reversed(bodies) if one.get("usage")), {})
    cached = (usage.get("prompt_tokens_details") or {}).get("cached_tokens") or 0
    came = usage.get("input_tokens") or usage.get("prompt_tokens") or 0
    return came - cached, usage.get("output_tokens") or usage.get("completion_tokens") or 0


class GoesRound(Agent):
    """Streams, and makes one call again and again, whatever comes of it."""

    def __init__(self, url: str) -> None:
        super().__init__("night-looper", url, 3)
        self._messages: list[Json] = []
        self._session = ""
        self._call: Json = {}

    async def one(self) -> None:
        if len(self._messages) in (0, 1 + 2 * LAPS):
            question = next(self.questions)
            self._session = str(uuid.uuid4())
            self._messages = [{"role": "user", "content": question.text}]
            self._call = {"name": question.tool, "arguments": json.dumps(question.arguments)}
        more = {"stream": True, "stream_options": {"include_usage": True}}
        await self.ask(self._messages, self._session, **more)
        identity = f"call_{len(self._messages)}"
        call = {"id": identity, "type": "function", "function": self._call}
        self._messages.append({"role": "assistant", "content": None, "tool_calls": [call]})
        result = {"role": "tool", "tool_call_id": identity, "content": '{"status": "pending"}'}
        self._messages.append(result)


def all_agents(url: str) -> list[Agent]:
    of_chat = Agent("night-chat", url, 1)
    return [of_chat, Agent("night-messages", url, 2, MESSAGES), GoesRound(url)]
