"""Asks a chat completion as a streaming client does, and puts its reply together."""

from __future__ import annotations

import json
import time
from typing import Any

import httpx

from .stack import Way

Json = dict[str, Any]
SECONDS = 600.0
MAX_TOKENS = 400
TEMPERATURE = 0.7
_COMMENT = ": x-mlx-stack "


async def ask(client: httpx.AsyncClient, way: Way, session: str, seed: int, **body: Any) -> Json:
    """Return the reply: content, tool_calls, finish, status, error, attempts, repairs, seconds."""
    reply: Json = {"content": "", "tool_calls": [], "finish": None, "status": 0, "error": ""}
    began = time.monotonic()
    headers = {"authorization": f"Bearer {way.key}"} if way.key else {}
    headers["x-mlx-stack-session"] = session
    whole = {
        "model": way.model,
        "temperature": TEMPERATURE,
        "max_tokens": MAX_TOKENS,
        "seed": seed,
        "stream": True,
        "stream_options": {"include_usage": True},
        **body,
    }
    try:
        url = f"{way.url}/v1/chat/completions"
        async with client.stream("POST", url, json=whole, headers=headers) as response:
            reply["status"] = response.status_code
            if response.status_code != 200:
                reply["error"] = (await response.aread()).decode("utf-8", "replace")[:600]
            else:
                async for line in response.aiter_lines():
                    _take(line, reply)
    except httpx.HTTPError as error:
        reply["error"] = repr(error)
    return reply | {"seconds": round(time.monotonic() - began, 1)}


def _take(line: str, reply: Json) -> None:
    if line.startswith(_COMMENT):
        about = json.loads(line[len(_COMMENT) :])
        reply["attempts"], reply["repairs"] = about.get("attempts", 1), about.get("repairs", "")
    if not line.startswith("data: {"):
        return
    chunk = json.loads(line[6:])
    if "error" in chunk:
        reply["error"] = json.dumps(chunk["error"])[:600]
    reply["usage"] = chunk.get("usage") or reply.get("usage")
    for choice in chunk.get("choices") or ():
        delta = choice.get("delta") or {}
        reply["content"] += delta.get("content") or ""
        for piece in delta.get("tool_calls") or ():
            _add_call(reply["tool_calls"], piece)
        reply["finish"] = choice.get("finish_reason") or reply["finish"]


def _add_call(calls: list[Json], piece: Json) -> None:
    index = piece.get("index", 0)
    while len(calls) <= index:
        calls.append({"id": "", "name": "", "arguments": ""})
    function = piece.get("function") or {}
    calls[index]["id"] = calls[index]["id"] or piece.get("id") or ""
    calls[index]["name"] += function.get("name") or ""
    calls[index]["arguments"] += function.get("arguments") or ""
