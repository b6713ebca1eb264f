"""How the tests ask, and how they read what came back."""

from __future__ import annotations

import json
from typing import Any

import httpx

from tests.support.running_proxy import RunningProxy

Json = dict[str, Any]
CHAT = "/v1/chat/completions"
MESSAGES = [{"role": "user", "content": "Say hello to the quokka."}]
NOTE = b": x-mlx-stack "
KEEP_ALIVE = b": keep-alive\n\n"
WITH_USAGE = {"stream": True, "stream_options": {"include_usage": True}}


def body(**more: Any) -> Json:
    return {"model": "fast", "messages": MESSAGES, **more}


async def ask(proxy: RunningProxy, headers: Json | None = None, **more: Any) -> httpx.Response:
    return await proxy.client.post(CHAT, json=body(**more), headers=headers)


async def ask_raw(
    proxy: RunningProxy, content: bytes, content_type: str | None = "application/json", **kw: Any
) -> httpx.Response:
    headers = {**({"content-type": content_type} if content_type else {}), **kw}
    return await proxy.client.post(CHAT, content=content, headers=headers)


def frames(stream: bytes) -> list[bytes]:
    """The events of a stream with LF line ends, each with its blank line."""
    return [part + b"\n\n" for part in stream.split(b"\n\n") if part]


def without_notes(stream: bytes) -> bytes:
    """The stream without the proxy's own last comment, which is checked for its shape."""
    start = stream.find(NOTE)
    if start < 0:
        return stream
    end = stream.index(b"\n\n", start) + 2
    note = json.loads(stream[start + len(NOTE) : end])
    assert {"tier", "retries", "attempts"} <= set(note)
    assert stream[end:].strip() == b"data: [DONE]", "the note stands before [DONE]"
    return stream[:start] + stream[end:]


def payloads(stream: bytes) -> list[Any]:
    """The JSON of each event; `[DONE]` as the string; comments left out."""
    found: list[Any] = []
    for frame in frames(stream.replace(b"\r\n", b"\n")):
        for line in frame.split(b"\n"):
            if line.startswith(b"data:"):
                text = line[5:].strip()
                found.append("[DONE]" if text == b"[DONE]" else json.loads(text))
    return found


def text_of(stream: bytes) -> str:
    return "".join(
        choice["delta"].get("content") or ""
        for payload in payloads(stream)
        if payload != "[DONE]"
        for choice in payload.get("choices", [])
    )


def checked_error(response: httpx.Response, status: int, kind: str) -> Json:
    """The error of a response, of the contract's shape, status and type."""
    assert response.status_code == status, response.text
    assert response.headers["content-type"].startswith("application/json")
    assert response.headers["x-should-retry"] == ("true" if status == 503 else "false")
    assert "Traceback" not in response.text
    return checked_error_body(response.json(), kind)


def checked_error_body(whole: Json, kind: str) -> Json:
    assert set(whole) == {"error"}
    error: Json = whole["error"]
    assert {"message", "type", "param", "code"} <= set(error)
    assert error["type"] == kind
    message = error["message"]
    assert isinstance(message, str)
    assert len(message) > 10
    assert "Traceback" not in message
    assert ".py" not in message
    return error
