"""A scripted reply of a model through the dialect, as a stream and as one object."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from pydantic import BaseModel

from mlx_stack_proxy.wire.dialect import Context
from mlx_stack_proxy.wire.responses import RESPONSES
from mlx_stack_proxy.wire.responses.stream import ResponseStream
from tests.support.deltas import Speaking
from tests.support.messages import call_piece
from tests.support.replies import chunk, usage_chunk

Json = dict[str, Any]


def context(body: Json | None = None, request_id: str = "req_1") -> Context:
    body = body or {"model": "fast", "input": "Hello"}
    echo = RESPONSES.to_chat(body, {}).echo
    return Context(request_id, body.get("model", ""), echo, lambda: 7)


def streamed(deltas: Iterable[Json], finish: str = "stop", body: Json | None = None) -> bytes:
    """The bytes of a stream of which each chunk has one of these deltas."""
    stream = Speaking(ResponseStream(context(body)))
    chunks = [chunk({"role": "assistant", "content": ""}), *map(chunk, deltas)]
    payloads = [*chunks, chunk({}, finish), usage_chunk()]
    return b"".join([stream.chunk(one) for one in payloads]) + stream.end()


def events(data: bytes) -> list[Json]:
    """The events in a stream's bytes; each name is its type, and ``[DONE]`` ends them."""
    *frames, done, rest = data.decode().split("\n\n")
    assert (done, rest) == ("data: [DONE]", "")
    found = []
    for frame in frames:
        name, payload = frame.split("\n")
        event = json.loads(payload.removeprefix("data: "))
        assert name == f"event: {event['type']}"
        found.append(event)
    return found


def call(name: str, arguments: str, index: int = 0, call_id: str = "call_1") -> Json:
    return call_piece(name, arguments, call_id, index)


def check_strictly(model: BaseModel) -> None:
    """Serialise what an SDK has read, with its warnings as errors, and validate it from nothing."""
    said = model.model_dump_json(warnings="error", by_alias=True)
    type(model).model_validate_json(said, strict=False)
