"""A plain agent: ask, run what is called, tell the result, until there is an answer."""

from __future__ import annotations

import time
from random import Random

import openai

from benchmarks.records import Json

from . import broken, tasks

TEMPERATURE = 0.7
MAX_TOKENS = 2048
MAX_TURNS = 20
TIMEOUT_SECONDS = 600.0  # of one request, as the SDK's own; it asks twice more, as after a 5xx
SHORT_TIMEOUT_SECONDS = 60.0  # with faults, where some requests would get no answer at all


async def run(client: openai.AsyncOpenAI, model: str, task: tasks.Task, seed: int) -> Json:
    """Let the agent do a task. ``seed``: of its sampling, another one for each request.

    Return whether it is ``right``; its ``end`` (answered, turns (too many), or the error's name);
    what is ``wrong``; each of its ``replies`` (the tier that answered, finish, flaw, tokens); and
    the ``seconds``. How long it waits for a reply is the client's.
    """
    world, begun, draws = tasks.world(task), time.monotonic(), Random(seed)
    messages: list[Json] = [
        {"role": "system", "content": tasks.SYSTEM},
        {"role": "user", "content": task.text},
    ]
    replies: list[Json] = []
    answer: str | None = None
    end = "turns"
    for _ in range(MAX_TURNS):
        try:
            message, reply = await _ask(client, model, messages, draws.randrange(2**31))
        except openai.APIError as error:
            end = type(error).__name__
            break
        replies.append(reply)
        calls = message.get("tool_calls") or []
        if not calls:
            answer, end = message.get("content") or "", "answered"
            break
        messages.append(
            {"role": "assistant", "content": message.get("content"), "tool_calls": calls}
        )
        for call in calls:
            said = world.call_json(call["function"]["name"], call["function"]["arguments"])
            messages.append({"role": "tool", "tool_call_id": call["id"], "content": said})
    wrong = end if answer is None else tasks.shortfall(task, world, answer)
    seconds = time.monotonic() - begun
    return {"right": not wrong, "end": end, "wrong": wrong, "replies": replies, "seconds": seconds}


async def _ask(
    client: openai.AsyncOpenAI, model: str, messages: list[Json], seed: int
) -> tuple[Json, Json]:
    """A message, and what is noted of the reply."""
    raw = await client.chat.completions.with_raw_response.create(
        model=model,
        messages=messages,  # type: ignore[arg-type]
        tools=tasks.TOOLS,  # type: ignore[arg-type]
        temperature=TEMPERATURE,
        max_tokens=MAX_TOKENS,
        seed=seed,
    )
    whole = raw.parse()
    choice = whole.choices[0]
    message = choice.message.model_dump(exclude_none=True)
    return message, {
        "tier": raw.headers.get("x-mlx-stack-tier", ""),
        "finish": choice.finish_reason,
        "flaw": broken.flaw(message, choice.finish_reason, messages, tasks.plain_tools()),
        "tokens": whole.usage.completion_tokens if whole.usage else 0,
    }
