"""What a tier can do, found out by asking it: a short reply, a streamed one, a tool call.

The questions go to LiteLLM directly, without the stages; the tool call is then judged by them, as
``replay`` does, so that it is said what would have been mended.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any, Literal

import orjson

from ..engine.services import upstream_key
from ..engine.upstream import CHAT_HEADERS, CHAT_PATH, Upstream, UpstreamError
from ..engine.upstream_answers import completion_in, quoted_error
from ..engine.verdicts import UpstreamFailed
from ..settings import Settings
from ..wire import sse
from .replay import DELIVERED, REPAIRED, RESCUED, BadRecord, Outcome, Replay

Mark = Literal["ok", "note", "FAIL"]
MOST_SECONDS = 180.0  # for one answer: a model may have to be read from the disk first
_TOOL_TOKENS, _REASONING_TOKENS = 256, 4096
_STREAM_TOKENS = 24
_TOOL = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "The weather in a city, now.",
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string", "description": "such as Lima"}},
            "required": ["city"],
        },
    },
}


class _Failed(Exception):
    """The question got no answer; the message says why."""


@dataclass(slots=True)
class _Streamed:
    """A streamed answer. ``first``: seconds until something came. ``error``: one inside it."""

    text: bytes = b""
    first: float = 0.0
    chunks: int = 0
    done: bool = False
    usage: bool = False
    error: str = ""

    def take(self, data: bytes | None) -> None:
        """The payload of one event."""
        if data is None:
            return
        if data.strip() == b"[DONE]":
            self.done = True
            return
        try:
            chunk = orjson.loads(data)
        except orjson.JSONDecodeError:
            return
        if isinstance(chunk, dict) and "choices" in chunk:
            self.chunks += 1
            self.usage = self.usage or bool(chunk.get("usage"))
        else:
            self.error = quoted_error(data)

    def verdict(self) -> tuple[Mark, str]:
        if self.error:
            return "FAIL", f"a streamed completion: an error inside it: {self.error}"
        if not self.chunks:
            return "FAIL", "does not stream: the answer holds no chunks"
        if not self.done:
            return "FAIL", "streams, but the stream breaks off before `[DONE]`"
        said = f"streams ({self.chunks} chunks, the first after {self.first:.1f} s)"
        if not self.usage:
            return "note", f"{said}, but doesn't tell its usage: budgets go by the text's length"
        return "ok", said


class Probe:
    """Asks the tiers of a configuration."""

    def __init__(self, settings: Settings, upstream: Upstream) -> None:
        self._settings = settings
        self._upstream = upstream
        self._headers = [*CHAT_HEADERS]
        if key := upstream_key(settings):
            self._headers.append((b"authorization", f"Bearer {key}".encode()))

    async def tier(self, name: str) -> AsyncIterator[tuple[Mark, str]]:
        """One line for each thing that was tried; no more after one that brought no answer."""
        try:
            yield "ok", f"answers ({await self._one_token(name):.1f} s)"
            yield (await self._streamed(name, self._body(name, _STREAM_TOKENS))).verdict()
            if self._settings.tiers[name].tools is False:
                yield "note", "not asked for a tool call: `tools: false`"
            else:
                yield await self._tool_call(name)
        except _Failed as error:
            yield "FAIL", str(error)

    def _body(self, name: str, tokens: int, **more: Any) -> dict[str, Any]:
        tier = self._settings.tiers[name]
        asked = "tools" in more
        question = "What is the weather in Lima? Use the tool." if asked else "Count from 1 to 9."
        return {
            "messages": [{"role": "user", "content": question}],
            **tier.params,
            "model": tier.model,
            "max_tokens": tokens,
            "num_retries": 0,
            "disable_fallbacks": True,
            **more,
        }

    async def _one_token(self, name: str) -> float:
        began = time.monotonic()
        what = "a one-token completion"
        parts = [part async for part, _ in self._parts(name, self._body(name, 1), what)]
        found = completion_in(b"".join(parts))
        if isinstance(found, UpstreamFailed):
            raise _Failed(f"{what}: {found.message}")
        return time.monotonic() - began

    async def _tool_call(self, name: str) -> tuple[Mark, str]:
        reasons = self._settings.tiers[name].reasoning
        body = self._body(name, _REASONING_TOKENS if reasons else _TOOL_TOKENS, tools=[_TOOL])
        streamed = await self._streamed(name, body)
        reply = {"stream": streamed.text.decode("utf-8", "replace")}
        try:
            outcome = Replay(self._settings).record({"request": body, "reply": reply, "tier": name})
        except BadRecord as error:
            return "note", f"a tool call: {error}"
        return _of_tool_call(outcome)

    async def _streamed(self, name: str, body: dict[str, Any]) -> _Streamed:
        asked = {**body, "stream": True, "stream_options": {"include_usage": True}}
        found, reader = _Streamed(), sse.FrameReader()
        async for part, seconds in self._parts(name, asked, "a streamed completion"):
            found.first = found.first or seconds
            found.text += part
            for frame in reader.feed(part):
                found.take(frame.data)
        return found

    async def _parts(
        self, name: str, body: dict[str, Any], what: str
    ) -> AsyncIterator[tuple[bytes, float]]:
        """The answer as it comes in, each part with the seconds since the question."""
        began = time.monotonic()
        seconds = min(MOST_SECONDS, self._settings.tiers[name].total_timeout)
        try:
            async with asyncio.timeout(seconds):
                response = await self._upstream.send(
                    "POST", CHAT_PATH, self._headers, orjson.dumps(body)
                )
                try:
                    if response.status >= 400:
                        said = quoted_error(await response.read())
                        raise _Failed(f"{what}: status {response.status}: {said}")
                    while part := await response.next_bytes():
                        yield part, time.monotonic() - began
                finally:
                    await response.aclose()
        except UpstreamError as error:
            raise _Failed(f"{what}: {error}") from None
        except TimeoutError:
            raise _Failed(f"{what}: not whole after {seconds:g} s") from None


def _of_tool_call(outcome: Outcome) -> tuple[Mark, str]:
    called = outcome.reply is not None and any(
        choice["message"].get("tool_calls") for choice in outcome.reply["choices"]
    )
    if outcome.action == DELIVERED and called:
        return "ok", "calls tools"
    if outcome.action == REPAIRED and called:
        return "ok", f"calls tools, once repaired: {', '.join(outcome.repairs)}"
    if outcome.action == RESCUED:
        return "ok", f"calls tools, written as text: {', '.join(outcome.formats)}"
    if outcome.action in (DELIVERED, REPAIRED):
        return "note", "asked for a tool call, it answered with text"
    errors = "; ".join(one["error"] for one in outcome.failures) or outcome.reason or outcome.error
    return "note", f"asked for a tool call, it sent none that can be used: {errors[:200]}"
