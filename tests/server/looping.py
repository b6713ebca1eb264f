"""Agents that go round in circles, and replies that do."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import cycle
from typing import Any

import httpx

from tests.server.asking import MESSAGES, ask
from tests.server.calling import deltas
from tests.support.messages import call_piece, called, gave
from tests.support.replies import ROLE, chunk, data, stream, with_role
from tests.support.running_proxy import RunningProxy
from tests.support.scripted_server import SILENCE, Call, Piece, Reply, ScriptedServer
from tests.tool_validation.calls import parameters, tool

Json = dict[str, Any]
RULES = "reliability.loop_detection"
CHAIN = "reliability.escalation.chain"
TOOLS = [tool(name, parameters("key", key="string")) for name in ("look", "read", "note")]
HINTED = "Stop repeating the same"
BROKEN = (
    "Repeated identical output detected (3x). Consider rephrasing the request or trying a "
    "different approach."
)


def calling(name: str, key: str = "x", text: str = "") -> Reply:
    call = call_piece(name, json.dumps({"key": key}), f"call_{name}")
    before = [{"content": text}] if text else []
    return stream(with_role(*before, call, finish="tool_calls"))


@dataclass
class Agent:
    """Sends its whole transcript each time, runs each call, and goes on whatever it is told."""

    proxy: RunningProxy
    results: Callable[[str], str] = "result of {}".format
    messages: list[Json] = field(default_factory=lambda: list(MESSAGES))
    responses: list[httpx.Response] = field(default_factory=list)

    @property
    def upstream(self) -> ScriptedServer | None:
        return self.proxy.upstream

    async def turn(self, **more: Any) -> httpx.Response:
        more = {"tools": TOOLS, "stream": True, **more}
        response = await ask(self.proxy, **{**more, "messages": self.messages})
        self.responses.append(response)
        return response

    async def run(self, turns: int, **more: Any) -> httpx.Response:
        """Take turns until the last one has been answered; it alone is not followed up."""
        for left in range(turns, 0, -1):
            response = await self.turn(**more)
            if left > 1:
                self.follow_up(response)
        return self.responses[-1]

    def follow_up(self, response: httpx.Response) -> None:
        (call,) = [c for one in deltas(response) for c in one.get("tool_calls", ())]
        call = {key: call[key] for key in ("id", "type", "function")}
        said = self.results(call["function"]["name"])
        self.messages += [called(call), gave(call["id"], said)]

    def header(self, number: int) -> str | None:
        """X-MLX-Stack-Loop of a response; the first is 1."""
        return self.responses[number - 1].headers.get("x-mlx-stack-loop")


def a_b_a_b() -> Callable[[Call], Reply]:
    names = cycle(("look", "read"))
    return lambda call: calling(next(names))


STUCK = "I will look at the file again. "


def endless(delta: Json, times: int = 200) -> Reply:
    """The same delta again and again; then the server goes on computing."""
    pieces: list[Piece] = [ROLE, *[data(chunk(delta))] * times, SILENCE]
    return Reply.sse(*pieces)
