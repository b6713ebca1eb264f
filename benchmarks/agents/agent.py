"""A plain agent: ask, run what is called, tell the result, until there is an answer."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from random import Random
from typing import Any

import openai

from . import broken, tasks

Json = dict[str, Any]
TEMPERATURE = 0.7
MAX_TOKENS = 2048
MAX_TURNS = 20
TIMEOUT_SECONDS = 600.0  # of one request, as the SDK's own; it asks twice more, as after a 5xx
SHORT_TIMEOUT_SECONDS = 60.0  # with faults, where some requests would get no answer at all


@dataclass
class Reply:
    """One reply that the agent got. ``tier``: who answered. ``tokens``: as its usage says."""

    tier: str
    finish: str | None
    flaw: str
    tokens: int


@dataclass
class Run:
    """One task done. ``end``: answered, turns (too many), or the error's name."""

    right: bool = False
    end: str = ""
    wrong: str = ""
    replies: list[Reply] = field(default_factory=list)
    seconds: float = 0.0


async def run(client: openai.AsyncOpenAI, model: str, task: tasks.Task, seed: int) -> Run:
    """Let the agent do a task. ``seed``: of its sampling, another one for each request.

    How long it waits for a reply is the client's.
    """
    done, world, begun = Run(), tasks.world(task), time.monotonic()
    draws = Random(seed)
    messages: list[Json] = [
        {"role": "system", "content": tasks.SYSTEM},
        {"role": "user", "content": task.text},
    ]
    answer = None
    done.end = "turns"
    for _ in range(MAX_TURNS):
        try:
            message = await _ask(client, model, messages, draws.randrange(2**31), done)
        except openai.APIError as error:
            done.end = type(error).__name__
            break
        if not message.get("tool_calls"):
            answer, done.end = message.get("content") or "", "answered"
            break
        messages += [message, *_results(world, message["tool_calls"])]
    done.wrong = done.end if answer is None else tasks.shortfall(task, world, answer)
    done.right = not done.wrong
    done.seconds = time.monotonic() - begun
    return done


async def _ask(
    client: openai.AsyncOpenAI, model: str, messages: list[Json], seed: int, done: Run
) -> Json:
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
    found = broken.flaw(message, choice.finish_reason, messages, tasks.plain_tools())
    tokens = whole.usage.completion_tokens if whole.usage else 0
    tier = raw.headers.get("x-mlx-stack-tier", "")
    done.replies.append(Reply(tier, choice.finish_reason, found, tokens))
    kept: Json = {"role": "assistant", "content": message.get("content")}
    if message.get("tool_calls"):
        kept["tool_calls"] = message["tool_calls"]
    return kept


def _results(world: tasks.World, calls: list[Json]) -> list[Json]:
    return [
        {
            "role": "tool",
            "tool_call_id": call["id"],
            "content": world.call_json(call["function"]["name"], call["function"]["arguments"]),
        }
        for call in calls
    ]
