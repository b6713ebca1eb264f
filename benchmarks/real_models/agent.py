"""A small agent that plays one task of ``tasks.py`` by one way, and how it asks."""

from __future__ import annotations

import asyncio
import json
import tempfile
import time
from pathlib import Path
from typing import Any

import httpx

from benchmarks.came import Came, call, read
from benchmarks.records import Json

from . import tasks
from .questions import is_text_call
from .stack import Way
from .tasks import Folder, Task

ASK_SECONDS = 600.0
MAX_TOKENS = 400
TEMPERATURE = 0.7
MAX_TURNS = 12
SECONDS = 420.0  # for a task


async def ask(http: httpx.AsyncClient, way: Way, session: str, seed: int, **body: Any) -> Json:
    """Ask a chat completion as a streaming client does. Return the reply: content, tool_calls
    (each with id, name and arguments), finish, status, error, usage, attempts, repairs, seconds."""
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
        response = await http.post(url, json=whole, headers=headers)
        status = response.status_code
        came = read(response.text) if status == 200 else Came(error=response.text)
    except (httpx.HTTPError, ValueError) as error:
        came = Came(error=repr(error))
    calls = came.message["tool_calls"]
    return {
        "content": came.message["content"],
        "tool_calls": [{"id": one["id"], **one["function"]} for one in calls],
        "finish": came.finish,
        "status": status,
        "error": came.error[:600],
        "usage": came.usage,
        "attempts": came.note.get("attempts", 1),
        "repairs": came.note.get("repairs", ""),
        "seconds": round(time.monotonic() - began, 1),
    }


async def play(http: httpx.AsyncClient, way: Way, task: Task, seed: int) -> Json:
    """Return how a task ended: name, done, end, turns, attempts, repairs, final, seconds."""
    with tempfile.TemporaryDirectory(prefix="real-models-") as path:
        folder, began = Folder(Path(path)), time.monotonic()
        messages: list[Json] = [
            {"role": "system", "content": tasks.SYSTEM},
            {"role": "user", "content": task.asked},
        ]
        replies: list[Json] = []
        end, final = "limit", ""
        while len(replies) < MAX_TURNS and end == "limit":
            session = f"{task.name}-{began}"
            reply = await ask(http, way, session, seed, messages=messages, tools=tasks.TOOLS)
            replies.append(reply)
            if reply["error"]:
                end = f"error {reply['status']}"
            elif not reply["tool_calls"]:
                final = reply["content"]
                end = "text_call" if is_text_call(final, tasks.NAMES) else "answer"
            elif time.monotonic() - began > SECONDS:
                end = "time"
            else:
                messages += await asyncio.to_thread(_turn, folder, reply, len(replies))
        try:
            done = await asyncio.to_thread(task.done, folder, final)
        except Exception:  # such as a program of the model's that runs too long
            done = False
        return {
            "name": task.name,
            "done": done,
            "end": end,
            "turns": len(replies),
            "attempts": sum(reply["attempts"] for reply in replies),
            "repairs": [reply["repairs"] for reply in replies],
            "final": final[:500],
            "error": replies[-1]["error"][:300],
            "seconds": round(time.monotonic() - began, 1),
            "calls": [
                [f"{one['name']}({one['arguments'][:200]})" for one in reply["tool_calls"]]
                for reply in replies
            ],
        }


def _turn(folder: Folder, reply: Json, number: int) -> list[Json]:
    """Run the calls of a reply; return the assistant's message and the results."""
    calls, results = [], []
    for position, one in enumerate(reply["tool_calls"]):
        identity = one["id"] or f"call_{number}_{position}"
        calls.append(call(identity, one["name"], one["arguments"]))
        try:
            arguments = json.loads(one["arguments"])
            output = folder.use(one["name"], arguments if isinstance(arguments, dict) else {})
        except ValueError as error:
            output = f"Error: the arguments are no JSON: {error}"
        results.append({"role": "tool", "tool_call_id": identity, "content": output})
    content = reply["content"] or None
    return [{"role": "assistant", "content": content, "tool_calls": calls}, *results]
