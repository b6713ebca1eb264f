"""Clients of the whole real stack while a tier's model server is killed or stopped."""

from __future__ import annotations

import asyncio
import json
import signal
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import httpx
import openai
import yaml

from mlx_stack_proxy.operator.local_stack.tiers import demo_model
from tests.e2e.running_stack import REPOSITORY, RunningStack, wait_until
from tests.faults.clients import Client

Json = dict[str, Any]
sys.path.insert(0, str(REPOSITORY / "deploy" / "local"))  # the demo tools and questions
SILENCE_SECONDS = 5
STREAMS = 20
COOLDOWN_SECONDS = 12  # a probe that fails meanwhile would double it
QUESTION = [{"role": "user", "content": "Who are you?"}]
# Good replies before, from which the proxy knows what the tier's usage looks like; enough of them
# that one or two whose usage came too late, on a busy machine, change nothing.
WARM_UP = 32
LONG, SHORT = 4000, 120  # tokens; the long replies don't end by themselves
LEAST = 3000  # characters of all, before the fault: LiteLLM counts long texts for seconds
RESTART_SECONDS = 120
RELOAD_SECONDS = 30


@contextmanager
def short_limits(stack: RunningStack) -> Iterator[None]:
    """The stack's proxy with limits of seconds on silence, and as it was afterwards.

    It has had good replies of the fast tier.
    """
    before = (stack.run_dir / "config.yaml").read_text()
    config = yaml.safe_load(before)
    for name, tier in config["tiers"].items():
        limits = ("first_token_timeout", "idle_timeout", "tool_silence_timeout")
        tier.update(dict.fromkeys(limits, SILENCE_SECONDS))
        # One after another: in a batch of prompts of different lengths, mlx_lm.server's replies at
        # temperature 0 are others than alone, and a tiny model then babbles.
        tier["max_concurrency"] = STREAMS if name == "fast" else 1
    config["reliability"]["escalation"]["degrade"] = {"cooldown_seconds": COOLDOWN_SECONDS}
    # All clients ask the same here, over and over: no agent does.
    config["reliability"]["loop_detection"] = {"enabled": False}
    try:
        reload(stack, yaml.safe_dump(config))
        with ThreadPoolExecutor(8) as pool:
            for reply in pool.map(lambda _: ask_once(stack), range(WARM_UP)):
                assert reply.status_code == 200, reply.text
        yield
    finally:
        reload(stack, before)


def reload(stack: RunningStack, config: str) -> None:
    """Have the proxy read this configuration, and wait until it has."""
    log = stack.run_dir / "logs" / "proxy.log"
    so_far = log.read_text().count("settings_changed")
    (stack.run_dir / "config.yaml").write_text(config)
    stack.children()["proxy"].send_signal(signal.SIGHUP)
    wait_until(
        lambda: log.read_text().count("settings_changed") > so_far, RELOAD_SECONDS, "the reload"
    )


def endless(tier: str) -> Json:
    """What keeps a reply from ending by itself: the token that would end it is forbidden."""
    folder = demo_model(tier)
    assert folder is not None
    ends = json.loads((folder / "config.json").read_text())["eos_token_id"]
    ends = ends if isinstance(ends, list) else [ends]
    return {"logit_bias": {str(token): -100 for token in ends}, "max_tokens": LONG}


@dataclass(frozen=True)
class Asking:
    """One of the crowd. `waits`: nothing of its reply has come when the fault does."""

    client: Client
    request: Json
    waits: bool = True


def crowd() -> list[Asking]:
    """Half of them read text when the fault comes; nothing has come to the others yet."""
    from demo_tiers import questions, tools

    half = STREAMS // 2
    babbles = {"messages": QUESTION, "temperature": 1.4, **endless("fast")}
    found = [Asking(Client("live", False), babbles, waits=False)] * half
    for number, question in enumerate(questions.seen(half)):
        if number % 2:
            client = Client(("live", "whole", "buffered")[number % 3], True)
            messages = [{"role": "user", "content": question.text}]
            asked = {"messages": messages, "tools": tools.TOOLS, "temperature": 0}
            found.append(Asking(client, {**asked, "max_tokens": SHORT}))
        else:
            client = Client(("whole", "buffered")[number // 2 % 2], False)
            asked = {"messages": QUESTION, "temperature": 0, "max_tokens": SHORT}
            found.append(Asking(client, asked))
    return found


@dataclass
class Ended:
    """How one request of the crowd ended, as the OpenAI SDK tells it."""

    asking: Asking
    text: str = ""
    calls: list[str] = field(default_factory=list)
    finish: str | None = None
    error: str = ""
    tier: str = ""
    seconds: float = 0.0

    @property
    def verdict(self) -> str:
        """`good`, `error`, or what is wrong."""
        if self.error:
            whole = self.finish is not None or self.calls
            return "wrong: a whole reply, and an error" if whole else "error"
        if self.finish is None:
            return "wrong: no end, and no error"
        # What a small model says is not looked at, but that it is whole, and no call is doubled.
        if not self.text and not self.calls:
            return "wrong: nothing, and no error"
        if len(set(self.calls)) < len(self.calls):
            return f"wrong: calls {self.calls}"
        return "good"

    @property
    def wanted(self) -> str:
        return "good" if self.asking.waits else "error"


class Crowd:
    """`STREAMS` clients of the OpenAI SDK at once."""

    def __init__(self, stack: RunningStack) -> None:
        self._stack = stack
        self._reading = self._ended = self._characters = 0
        self._sdk = openai.AsyncOpenAI(
            base_url=f"{stack.url}/v1", api_key="local", max_retries=0, timeout=120
        )

    async def during(self, fault: int, meanwhile: Callable[[], None]) -> list[Ended]:
        """Start them, stop the fast tier's server, send it this signal; how each ended.

        `meanwhile`: what is done while they wait.
        """
        async with self._sdk, asyncio.TaskGroup() as group:
            everyone = [Ended(asking) for asking in crowd()]
            for number, one in enumerate(everyone[: STREAMS // 2]):
                group.create_task(self._one(number, one))
            await _until(lambda: self._reading + self._ended >= STREAMS // 2)
            await _until(lambda: self._characters >= LEAST)
            # What is asked now waits for a first token until the fault comes.
            signal_fast(self._stack, signal.SIGSTOP)
            for number, one in enumerate(everyone[STREAMS // 2 :], STREAMS // 2):
                group.create_task(self._one(number, one))
            await _until(lambda: self._in_flight() + self._ended >= STREAMS)
            signal_fast(self._stack, fault)
            await asyncio.to_thread(meanwhile)
        return everyone

    def _in_flight(self) -> float:
        return self._stack.metric("mlx_stack_in_flight", tier="fast")

    async def _one(self, number: int, ended: Ended) -> None:
        client = ended.asking.client
        headers = {"X-MLX-Stack-Session": f"session-{id(self)}-{number:04}"}
        if client.how == "buffered":
            headers["X-MLX-Stack-Stream"] = "buffered"
        request = {"model": "fast", "extra_headers": headers, **ended.asking.request}
        begun = time.monotonic()
        try:
            if client.streams:
                await self._stream(request, ended)
            else:
                raw = await self._sdk.chat.completions.with_raw_response.create(**request)
                ended.tier = raw.headers["x-mlx-stack-tier"]
                choice = raw.parse().choices[0]
                ended.text, ended.finish = choice.message.content or "", choice.finish_reason
                ended.calls = [call.function.name for call in choice.message.tool_calls or ()]
        except openai.APIError as error:
            ended.error = error.message
        ended.seconds = time.monotonic() - begun
        self._ended += 1

    async def _stream(self, request: Json, ended: Ended) -> None:
        stream = await self._sdk.chat.completions.create(**request, stream=True)
        ended.tier = stream.response.headers["x-mlx-stack-tier"]
        async for chunk in stream:
            for choice in chunk.choices:
                said = choice.delta.content or ""
                self._reading += bool(said) and not ended.text
                self._characters += len(said)
                ended.text += said
                for call in choice.delta.tool_calls or ():
                    ended.calls += [call.function.name] if call.function.name else []
                ended.finish = choice.finish_reason or ended.finish


async def _until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not condition():  # noqa: ASYNC110
            await asyncio.sleep(0.02)


def ask_once(stack: RunningStack, max_tokens: int = 20) -> httpx.Response:
    """A new request to the fast tier, of a new session: it sticks to no tier that answered."""
    body: Json = {"model": "fast", "messages": QUESTION, "max_tokens": max_tokens, "temperature": 0}
    headers = {"X-MLX-Stack-Session": f"session-{time.monotonic_ns()}"}
    return httpx.post(f"{stack.url}/v1/chat/completions", json=body, headers=headers, timeout=60)


def until_used_again(stack: RunningStack) -> float:
    """Seconds until the fast tier answers new requests again."""

    def used() -> bool:
        return ask_once(stack, 5).headers.get("x-mlx-stack-tier") == "fast"

    return wait_until(used, RESTART_SECONDS, "the fast tier's return")


def signal_fast(stack: RunningStack, number: int) -> None:
    stack.children()["fast"].send_signal(number)
