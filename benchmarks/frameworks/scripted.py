"""A model server that plays a given run, for frameworks whose prompts the demo models can't follow.

It stands where `mlx_lm.server` does, behind the real LiteLLM. Which turn it is, is read from the
request: the number of tool results that came so far. With faults on, each turn begins with bad
replies, of which a framework must notice nothing.
"""

from __future__ import annotations

import asyncio
import json
import secrets
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from tests.faults.catalogue import EMPTY, LOST_CALL, calling, whole
from tests.support.replies import text_chunks
from tests.support.scripted_server import RESET, Call, Reply, ScriptedServer, WhenWhole

Json = dict[str, Any]


@dataclass(frozen=True)
class Say:
    text: str


@dataclass(frozen=True)
class Use:
    """A call. `arguments`: as JSON, or what makes it of the request."""

    tool: str
    arguments: Json | Callable[[Json], Json]

    def written(self, body: Json) -> str:
        made = self.arguments(body) if callable(self.arguments) else self.arguments
        return json.dumps(made)


Turn = Say | Use
ASIDE = Say("Order A-1043")  # to what frameworks ask beside the task: a title, a summary


BAD = "bad_"


def call_of(name: str, arguments: str, mark: str = "call_") -> Reply:
    return calling(name, arguments, mark + secrets.token_hex(4))


def results_in(body: Json) -> int:
    """How many tool results a request has, without those of the proxy's own corrections."""
    return sum(
        message.get("role") == "tool" and not message.get("tool_call_id", "").startswith(BAD)
        for message in body.get("messages", ())
    )


class Model:
    """`turns`: what it says, one after another; `results`: how many calls of a request are done.

    `faults`: whether each turn begins with bad replies; `played` counts those by kind.
    """

    def __init__(
        self, turns: Sequence[Turn], results: Callable[[Json], int], faults: bool = False
    ) -> None:
        self.turns = turns
        self._results = results
        self.played: Counter[str] = Counter()
        self._faults = faults
        self._asked: Counter[int] = Counter()

    def reply(self, call: Call) -> Reply:
        body = call.json()
        at = min(self._results(body), len(self.turns) - 1)
        turn = self.turns[at]
        if not body.get("tools") and any(isinstance(one, Use) for one in self.turns):
            turn = ASIDE
        elif self._faults:
            tries = self._asked[at]
            self._asked[at] += 1
            bad = bad_replies(turn, body, at)
            if tries < len(bad):
                name, reply = bad[tries]
                self.played[name] += 1
                return reply
        return good_reply(turn, body)


def good_reply(turn: Turn, body: Json) -> Reply:
    if isinstance(turn, Say):
        return whole(text_chunks(*_words(turn.text)))
    return call_of(turn.tool, turn.written(body))


def bad_replies(turn: Turn, body: Json, at: int) -> list[tuple[str, Reply]]:
    """What the tiers say before the good reply; turns differ, so that a run sees most of them."""
    if isinstance(turn, Say):
        return [("reset", Reply.raw(RESET)), ("empty", EMPTY)]
    arguments = turn.written(body)
    kinds = [
        ("lost call", LOST_CALL),
        ("invented tool", call_of(f"{turn.tool}_please", arguments, BAD)),
        ("missing arguments", call_of(turn.tool, "{}", BAD)),
        ("broken JSON", call_of(turn.tool, arguments[: len(arguments) // 2], BAD)),
    ]
    return [kinds[(2 * at + more) % len(kinds)] for more in range(2)]


def _words(text: str) -> list[str]:
    return [word + " " for word in text.split(" ")[:-1]] + text.split(" ")[-1:]


class Plays(Protocol):
    def reply(self, call: Call) -> Reply: ...


class ModelServers:
    """A server for each tier, all with the same model."""

    def __init__(self, ports: Sequence[int]) -> None:
        self._servers = []
        for port in ports:
            server = ScriptedServer()
            server.port = port
            self._servers.append(server)

    async def listen(self) -> None:
        await asyncio.gather(*(server.listen() for server in self._servers))

    async def stop(self) -> None:
        await asyncio.gather(*(server.stop() for server in self._servers))

    def play(self, model: Plays) -> None:
        for server in self._servers:
            server.always(WhenWhole(model.reply))
