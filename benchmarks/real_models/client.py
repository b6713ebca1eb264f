"""Asks a chat completion as a streaming client does, and puts its reply together."""

from __future__ import annotations

import time
from typing import Any

import httpx

from benchmarks.came import Came, read

from .stack import Way

Json = dict[str, Any]
SECONDS = 600.0
MAX_TOKENS = 400
TEMPERATURE = 0.7


async def ask(client: httpx.AsyncClient, way: Way, session: str, seed: int, **body: Any) -> Json:
    """Return the reply: content, tool_calls (each with id, name and arguments), finish, status,
    error, usage, attempts, repairs, seconds."""
    began, status = time.monotonic(), 0
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
        response = await client.post(url, json=whole, headers=headers)
        status = response.status_code
        came = read(response.text) if status == 200 else Came(error=response.text)
    except (httpx.HTTPError, ValueError) as error:
        came = Came(error=repr(error))
    return {
        "content": came.message["content"],
        "tool_calls": [
            {"id": call["id"], **call["function"]} for call in came.message["tool_calls"]
        ],
        "finish": came.finish,
        "status": status,
        "error": came.error[:600],
        "usage": came.usage,
        "attempts": came.note.get("attempts", 1),
        "repairs": came.note.get("repairs", ""),
        "seconds": round(time.monotonic() - began, 1),
    }
