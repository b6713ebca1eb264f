"""The turns of a scripted model, for agents whose prompts the demo models can't follow.

Which turn it is, is read from the request: the number of tool results that came so far.
"""

from __future__ import annotations

import json
import secrets
from dataclasses import dataclass
from typing import Protocol

from benchmarks.records import Json
from tests.faults.catalogue import calling, whole
from tests.support.replies import text_chunks
from tests.support.scripted_server import Call, Reply

BAD = "bad_"  # the beginning of a bad call's id


@dataclass(frozen=True)
class Say:
    text: str


@dataclass(frozen=True)
class Use:
    """A call."""

    tool: str
    arguments: Json

    @property
    def written(self) -> str:
        return json.dumps(self.arguments)


Turn = Say | Use


class Plays(Protocol):
    def reply(self, call: Call) -> Reply: ...


def call_of(name: str, arguments: str, mark: str = "call_") -> Reply:
    return calling(name, arguments, mark + secrets.token_hex(4))


def good_reply(turn: Turn) -> Reply:
    if isinstance(turn, Say):
        return whole(text_chunks(*turn.text.replace(" ", " \0").split("\0")))
    return call_of(turn.tool, turn.written)


def results_in(body: Json) -> int:
    """How many tool results a request has, without those of the proxy's own corrections."""
    return sum(
        message.get("role") == "tool" and not message.get("tool_call_id", "").startswith(BAD)
        for message in body.get("messages", ())
    )
