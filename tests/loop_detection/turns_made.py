"""Messages of an agent's run, and the history that they tell."""

from __future__ import annotations

import json
from typing import Any

from mlx_stack_proxy.loop_detection.history import History
from mlx_stack_proxy.loop_detection.memory import SessionMemory
from mlx_stack_proxy.loop_detection.turns import Inputs
from mlx_stack_proxy.wire.blocks import Blocks

Json = dict[str, Any]
USER: Json = {"role": "user", "content": "Find it."}
SYSTEM: Json = {"role": "system", "content": "It is 12:00."}


def call(name: str, arguments: Any, id: str = "c1") -> Json:
    text = arguments if isinstance(arguments, str) else json.dumps(arguments)
    return {"id": id, "type": "function", "function": {"name": name, "arguments": text}}


def assistant(*calls: Json, text: str | None = None) -> Json:
    return {"role": "assistant", "content": text, **({"tool_calls": list(calls)} if calls else {})}


def tool(content: Any, id: str = "c1") -> Json:
    return {"role": "tool", "tool_call_id": id, "content": content}


def step(number: int, result: str = "ok") -> list[Json]:
    id = f"c{number}"
    return [assistant(call("search", {"query": str(number)}, id)), tool(result, id)]


def run(count: int) -> list[Json]:
    return [USER, *(message for number in range(count) for message in step(number))]


def read(messages: list[Json], memory: SessionMemory | None = None) -> History:
    return (memory or SessionMemory()).read(Blocks(messages))


def told(whole: History) -> list[Any]:
    """All that a history says, without the names of its places."""
    turns = [(t.inputs, t.action, t.calls) for t in whole.turns]
    return [turns, whole.pending]


def came(whole: History, position: int) -> Inputs:
    """What came after a turn."""
    return [*[turn.inputs for turn in whole.turns], whole.pending][position + 1]
