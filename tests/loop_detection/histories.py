"""Transcripts to test with, and what the detectors say of them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from itertools import count
from typing import Any

from mlx_stack_proxy.loop_detection.history import History
from mlx_stack_proxy.loop_detection.memory import SessionMemory
from mlx_stack_proxy.settings import DEFAULT_TIERS, Settings
from mlx_stack_proxy.wire.blocks import Blocks

Json = dict[str, Any]
TASK: Json = {"role": "user", "content": "Find out why the build is red."}
_ids = count()


def settings(**changes: Any) -> Settings:
    return Settings(tiers=DEFAULT_TIERS, reliability={"loop_detection": changes})  # type: ignore[arg-type]


def user(text: str) -> Json:
    return {"role": "user", "content": text}


def says(text: str) -> Json:
    return {"role": "assistant", "content": text}


def calls(*made: tuple[str, Json], text: str | None = None) -> Json:
    """An assistant message with these calls: (name, arguments)."""
    tool_calls = [
        {
            "id": f"call_{next(_ids)}",
            "type": "function",
            "function": {"name": name, "arguments": json.dumps(arguments)},
        }
        for name, arguments in made
    ]
    return {"role": "assistant", "content": text, "tool_calls": tool_calls}


def answers(message: Json, *results: Any) -> list[Json]:
    """The messages that answer a message's calls, in their order."""
    pairs = zip(message["tool_calls"], results, strict=True)
    return [{"role": "tool", "tool_call_id": one["id"], "content": said} for one, said in pairs]


def step(name: str, arguments: Json, result: Any, text: str | None = None) -> list[Json]:
    """One call and its answer."""
    message = calls((name, arguments), text=text)
    return [message, *answers(message, result)]


def steps(*made: tuple[str, Json, Any]) -> list[Json]:
    return [message for one in made for message in step(*one)]


def history(messages: Sequence[Json]) -> History:
    return SessionMemory().read(Blocks(messages))
