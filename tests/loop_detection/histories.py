"""Transcripts to test with, and what the detectors say of them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from itertools import count
from typing import Any

from mlx_stack_proxy.loop_detection import call_keys, detectors
from mlx_stack_proxy.loop_detection.finding import Finding
from mlx_stack_proxy.loop_detection.history import History
from mlx_stack_proxy.loop_detection.memory import SessionMemory
from mlx_stack_proxy.settings import DEFAULT_TIERS, LoopDetectionSettings, Settings
from mlx_stack_proxy.wire.blocks import Blocks

Json = dict[str, Any]
TASK: Json = {"role": "user", "content": "Find out why the build is red."}
_ids = count()


def rules(**changes: Any) -> LoopDetectionSettings:
    return LoopDetectionSettings(**changes)


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


def closed(messages: Sequence[Json], reply: Json) -> History:
    """The history with a reply as its newest turn, as when it is judged."""
    made = [
        call_keys.read(one["function"]["name"], one["function"]["arguments"])
        for one in reply.get("tool_calls") or ()
    ]
    return history(messages).closed_by(reply.get("content") or "", made)


def found(whole: History, **changes: Any) -> dict[str, Finding]:
    return {one.detector: one for one in detectors.findings(whole, rules(**changes))}


class Run:
    """An agent's run: in which request it was told (by whom), which reply was broken.

    Both are numbers from 1. The run goes on after a break, as if the reply had been delivered.
    """

    def __init__(self, messages: Sequence[Json], **changes: Any) -> None:
        self.told: list[tuple[int, str]] = []
        self.broken: list[tuple[int, str]] = []
        self.nearly: list[int] = []
        memory = SessionMemory()
        settings = rules(**changes)
        number = 0
        for at, message in enumerate([*messages, None]):
            if message is not None and message["role"] != "assistant":
                continue
            number += 1
            before = memory.read(Blocks(messages[:at]))
            one = next(detectors.findings(before, settings), None)
            if one is not None:
                self.told.append((number, one.detector))
            if message is None:
                return
            if detectors.could_break(before, settings):
                self.nearly.append(number)
            broken = detectors.breaks(closed(messages[:at], message), settings)
            if broken is not None:
                self.broken.append((number, broken.detector))

    @property
    def is_silent(self) -> bool:
        return not self.told and not self.broken
