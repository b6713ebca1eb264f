"""The first two turns of Claude Code and of Codex, as recorded, and the first as a chat completion.

The recordings lie beside the project. Their texts are cut, and say how long they were: they are
filled up to that length. Each session has a question and a name of its own.
"""

from __future__ import annotations

import itertools
import json
import re
from typing import Any, NamedTuple

import orjson

from benchmarks.measure.corpora import CORPORA
from benchmarks.records import Json
from mlx_stack_proxy.wire.dialect import Dialect
from mlx_stack_proxy.wire.messages import MESSAGES
from mlx_stack_proxy.wire.responses import RESPONSES

from .bodies import SESSIONS, SHORT, Batch, MakeBatch

FOLDER = CORPORA / "agent-requests"
ASKED = "Say done."  # what the recorded agents were asked
SAID = f"Say done. chunks={SHORT} pace=1"
CUT = re.compile(r"…\[(\d+) characters in all\]$")
FILLING = " The quick brown fox jumps over the lazy dog."
_names = itertools.count()  # no two sessions of a run have the same


class Agent(NamedTuple):
    """`recorded`: the names of its turns begin with it."""

    title: str
    dialect: Dialect
    path: str
    recorded: str


CLAUDE = Agent("Claude Code", MESSAGES, "/v1/messages", "claude-code")
CODEX = Agent("Codex", RESPONSES, "/v1/responses", "codex")
FIRST, SECOND = "01-first", "02-tool-result"


def are_there() -> bool:
    return FOLDER.is_dir()


def first(agent: Agent) -> MakeBatch:
    """Each request is a session's first."""

    def make(count: int) -> Batch:
        whole = [_body(agent, FIRST, next(_names)) for _ in range(count)]
        return Batch(whole, path=agent.path)

    return make


def as_chat(agent: Agent) -> MakeBatch:
    """The same, as the chat completion that it is translated to, of a session with a name, too."""

    def make(count: int) -> Batch:
        found = []
        for _ in range(count):
            body = orjson.loads(_body(agent, FIRST, next(_names)))
            chat = agent.dialect.to_chat(body, {}).body
            found.append(orjson.dumps({**chat, "metadata": body["metadata"]}))
        return Batch(found)

    return make


def second(agent: Agent) -> MakeBatch:
    """Each request is a session's second, whose first was sent before."""

    def make(count: int) -> Batch:
        names = [next(_names) for _ in range(min(count, SESSIONS))]
        few = [_body(agent, SECOND, name) for name in names]
        measured = [few[number % len(few)] for number in range(count)]
        return Batch(measured, [_body(agent, FIRST, name) for name in names], agent.path)

    return make


def _body(agent: Agent, turn: str, number: int) -> bytes:
    raw = json.loads((FOLDER / f"{agent.recorded}-{turn}.json").read_bytes())["body"]
    body: Json = _filled(raw)
    body["model"] = "fast"
    body["metadata"] = {"session_id": f"00000000-0000-4000-8000-{number:012}"}
    text = orjson.dumps(body).decode()
    assert text.count(ASKED) == 1, "the question is told by what it says"
    return text.replace(ASKED, f"Run {number}: {SAID}").encode()


def _filled(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _filled(one) for key, one in value.items()}
    if isinstance(value, list):
        return [_filled(one) for one in value]
    if isinstance(value, str) and (cut := CUT.search(value)):
        length = int(cut[1])
        return (value[: cut.start()] + FILLING * (length // len(FILLING) + 1))[:length]
    return value
