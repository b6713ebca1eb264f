"""A model that says what a test has written down, behind the dialect and in place of a network.

    model = ScriptedModel([{"content": "Hello"}], call("read", "{}"))
    client = model.client()         # OpenAI's own, unchanged

Each reply is a list of deltas. ``model.asked`` has the chat requests that a tier would have got.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterator
from typing import Any

import httpx
import openai

from mlx_stack_proxy.errors import ProxyError
from mlx_stack_proxy.wire.dialect import Context
from mlx_stack_proxy.wire.responses import RESPONSES
from tests.support.deltas import Speaking, spoken
from tests.support.replies import TOP, USAGE, chunk, usage_chunk

Json = dict[str, Any]


class ScriptedModel:
    def __init__(self, *replies: list[Json]) -> None:
        self._replies = list(replies)
        self.asked: list[Json] = []

    def client(self) -> openai.OpenAI:
        transport = httpx.MockTransport(self._handle)
        http = httpx.Client(transport=transport)
        return openai.OpenAI(base_url="http://proxy/v1", api_key="k", http_client=http)

    def async_client(self) -> openai.AsyncOpenAI:
        http = httpx.AsyncClient(transport=httpx.MockTransport(self._handle))
        return openai.AsyncOpenAI(base_url="http://proxy/v1", api_key="k", http_client=http)

    def _handle(self, request: httpx.Request) -> httpx.Response:
        assert request.url.path in RESPONSES.paths
        try:
            asked = RESPONSES.to_chat(json.loads(request.content), dict(request.headers))
        except ProxyError as error:
            reply = RESPONSES.error(error, "req_1")
            return httpx.Response(reply.status, headers=reply.headers, json=reply.body)
        self.asked.append(asked.body)
        number = f"req_{len(self.asked)}"
        context = Context(number, str(asked.body.get("model")), asked.echo, lambda: 7)
        deltas = self._replies.pop(0)
        if asked.body.get("stream"):
            headers = {"content-type": "text/event-stream"}
            return httpx.Response(200, headers=headers, stream=_Stream(context, deltas))
        return httpx.Response(200, json=spoken(RESPONSES, _completion(deltas), context))


class _Stream(httpx.SyncByteStream, httpx.AsyncByteStream):
    def __init__(self, context: Context, deltas: list[Json]) -> None:
        self._speaking = Speaking(RESPONSES.encoder(context))
        self._chunks = [*map(chunk, deltas), chunk({}, _finish(deltas)), usage_chunk()]

    def __iter__(self) -> Iterator[bytes]:
        yield self._speaking.encoder.keepalive()
        for one in self._chunks:
            yield self._speaking.chunk(one)
        yield self._speaking.end()

    async def __aiter__(self) -> AsyncIterator[bytes]:
        for piece in self:
            yield piece


def _finish(deltas: list[Json]) -> str:
    return "tool_calls" if any("tool_calls" in delta for delta in deltas) else "stop"


def _completion(deltas: list[Json]) -> Json:
    """The message that these deltas make; each field of one comes whole."""
    message: Json = {"role": "assistant", "content": None}
    for delta in deltas:
        for key, value in delta.items():
            message[key] = (message.get(key) or type(value)()) + value
    choice = {"index": 0, "message": message, "finish_reason": _finish(deltas)}
    return {**TOP, "object": "chat.completion", "choices": [choice], "usage": USAGE}
