"""A small agent that plays one task of ``tasks.py`` by one way."""

from __future__ import annotations

import asyncio
import json
import tempfile
import time
from pathlib import Path

import httpx

from . import client, tasks
from .questions import is_text_call
from .stack import Way
from .tasks import Folder, Json, Task

MAX_TURNS = 12
SECONDS = 420.0  # for a task


async def play(http: httpx.AsyncClient, way: Way, task: Task, seed: int) -> Json:
    """Return how a task ended: done, end, turns, attempts, repairs, final, seconds."""
    with tempfile.TemporaryDirectory(prefix="real-models-") as path:
        folder, began = Folder(Path(path)), time.monotonic()
        messages: list[Json] = [
            {"role": "system", "content": tasks.SYSTEM},
            {"role": "user", "content": task.asked},
        ]
        replies: list[Json] = []
        end, final = "limit", ""
        while len(replies) < MAX_TURNS and end == "limit":
            reply = await client.ask(
                http, way, f"{task.name}-{began}", seed, messages=messages, tools=tasks.TOOLS
            )
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
        return {
            "done": await asyncio.to_thread(_is_done, task, folder, final),
            "end": end,
            "turns": len(replies),
            "attempts": sum(reply["attempts"] for reply in replies),
            "repairs": [reply["repairs"] for reply in replies],
            "final": final[:500],
            "error": replies[-1]["error"][:300],
            "seconds": round(time.monotonic() - began, 1),
            "calls": [
                [f"{call['name']}({call['arguments'][:200]})" for call in reply["tool_calls"]]
                for reply in replies
            ],
        }


def _turn(folder: Folder, reply: Json, number: int) -> list[Json]:
    """Run the calls of a reply; return the assistant's message and the results."""
    calls, results = [], []
    for position, call in enumerate(reply["tool_calls"]):
        identity = call["id"] or f"call_{number}_{position}"
        function = {"name": call["name"], "arguments": call["arguments"]}
        calls.append({"id": identity, "type": "function", "function": function})
        try:
            arguments = json.loads(call["arguments"])
            output = folder.use(call["name"], arguments if isinstance(arguments, dict) else {})
        except ValueError as error:
            output = f"Error: the arguments are no JSON: {error}"
        results.append({"role": "tool", "tool_call_id": identity, "content": output})
    content = reply["content"] or None
    return [{"role": "assistant", "content": content, "tool_calls": calls}, *results]


def _is_done(task: Task, folder: Folder, final: str) -> bool:
    try:
        return task.done(folder, final)
    except Exception:  # such as a program of the model's that runs too long
        return False
