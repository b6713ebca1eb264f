"""The requests that are sent: plain ones, tool calls, many tools, long histories. No I/O."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable
from dataclasses import dataclass, field

import orjson

from benchmarks.came import call
from benchmarks.records import Json
from benchmarks.upstream import CALLED
from tests.tool_validation.calls import parameters

from .load import CHAT_PATH, chat_body

SHORT, LONG = 10, 500  # pieces of a reply
FEW, MANY = 4, 40  # tools that are offered
HISTORY_BYTES = 30_000
MESSAGES = 400
MESSAGE_BYTES = 180  # of an assistant's message or a result: 400 of them fit a 32k window
AT_ONCE = f"chunks={SHORT} pace=0"
STEPS_OF_A_TASK = 10  # so many calls of one tool are no loop to anyone
SESSIONS = 32  # that grow side by side where a history was seen before
NOUNS = ("file", "branch", "ticket", "table", "commit", "invoice", "test", "host", "user", "page")
VERBS = ("list", "search", "create", "update", "delete", "move", "compare", "export")
WORDS = ("parser", "token", "buffer", "stream", "index", "header", "socket", "frame", "cache")

_names = itertools.count()  # no two sessions of a run have the same


@dataclass(frozen=True)
class Batch:
    """`prepare`: sent before, not measured, in any order. `measured`: in this order."""

    measured: list[bytes]
    prepare: list[bytes] = field(default_factory=list)
    path: str = CHAT_PATH


MakeBatch = Callable[[int], Batch]


def tools(count: int) -> list[Json]:
    """Function tools as agents offer them, about 700 bytes each; the upstream's is the first."""
    rng = random.Random(5)
    found = [_tool(CALLED, "file", rng)]
    for number in range(count - 1):
        noun = NOUNS[number % len(NOUNS)]
        verb = VERBS[number // len(NOUNS) % len(VERBS)]
        again = number // (len(NOUNS) * len(VERBS))
        found.append(_tool(f"{verb}_{noun}" + (f"_{again}" if again else ""), noun, rng))
    return found


def _tool(name: str, noun: str, rng: random.Random) -> Json:
    schema = parameters(
        "path",
        path={"type": "string", "description": f"Where the {noun} is, from the root."},
        start_line={"type": "integer", "minimum": 1, "description": "First line, from 1."},
        mode={"type": "string", "enum": rng.sample(WORDS, 4), "description": "How to do it."},
        labels={"type": "array", "items": {"type": "string"}, "description": "Only those with."},
    )
    text = f"Works on a {noun} and says what it found. " + " ".join(rng.choices(WORDS, k=24)) + "."
    function = {"name": name, "description": text, "parameters": schema}
    return {"type": "function", "function": function}


def transcript(directive: str, count: int, message_bytes: int) -> list[Json]:
    """Several tasks of a run that reads other files and finds other things, `count` messages."""
    name = next(_names)
    rng = random.Random(name)
    messages: list[Json] = [
        {"role": "system", "content": "You are a careful assistant."},
        {"role": "user", "content": f"Run {name}: find the bug in the parser. {directive}"},
    ]
    while len(messages) < count:
        step = len(messages) // 2
        if step % STEPS_OF_A_TASK == 0:
            done = f"Done, step {step}: " + _words(rng, message_bytes)
            asked = f"Next, part {step}: " + _words(rng, message_bytes)
            messages.append({"role": "assistant", "content": done})
            messages.append({"role": "user", "content": asked})
            continue
        arguments = {"path": f"src/module_{step}.py", "start_line": step}
        made = call(f"call_{step}", CALLED, orjson.dumps(arguments).decode())
        said = f"Now module {step}: " + _words(rng, message_bytes - 160)
        messages.append({"role": "assistant", "content": said, "tool_calls": [made]})
        found = f"{step}: " + _words(rng, message_bytes)
        messages.append({"role": "tool", "tool_call_id": f"call_{step}", "content": found})
    return messages[:count]


def _words(rng: random.Random, size: int) -> str:
    return " ".join(rng.choices(WORDS, k=max(size, 8) // 7))


def request(messages: list[Json]) -> bytes:
    body = {"model": "fast", "messages": messages, "temperature": 0.2, "max_tokens": 1024}
    return orjson.dumps(body)


def plain(pieces: int, pace: int, stream: bool = False) -> MakeBatch:
    directive = f"chunks={pieces} pace={pace}"

    def make(count: int) -> Batch:
        few = [chat_body(directive, stream, number) for number in range(min(count, 64))]
        return Batch([few[number % len(few)] for number in range(count)])

    return make


def offering(count: int, *, new: bool = False, streamed: int = 0) -> MakeBatch:
    """A request that offers so many tools and gets a call, `streamed` in so many pieces.

    They are the same each time, as an agent's are, or `new`: no two requests offer the same.
    """
    offered = tools(count)
    directive = f"chunks={streamed} pace=1 call" if streamed else "chunks=1 pace=0 call"

    def make(number: int) -> Batch:
        few = []
        for session in range(min(number, 16)):
            body = orjson.loads(chat_body(directive, bool(streamed), session))
            few.append(orjson.dumps({**body, "tools": offered}))
        found = [few[each % len(few)] for each in range(number)]
        if new:  # other words in each of its tools, and in their parameters
            found = [raw.replace(b"First line", b"%d: first line" % next(_names)) for raw in found]
        return Batch(found)

    return make


def unseen(messages: int, message_bytes: int = MESSAGE_BYTES) -> MakeBatch:
    """Each request is a session's first, with all of its history."""

    def make(count: int) -> Batch:
        return Batch([request(transcript(AT_ONCE, messages, message_bytes)) for _ in range(count)])

    return make


def seen(messages: int, message_bytes: int = MESSAGE_BYTES) -> MakeBatch:
    """Sessions that grow by two messages a request; all but those two were sent before.

    The sizes lie around `messages`, which is their mean.
    """

    def make(count: int) -> Batch:
        sessions = min(count, SESSIONS)
        steps = -(-count // sessions)
        first = messages - 2 * (steps // 2)
        last = first + 2 * (steps - 1)
        whole = [transcript(AT_ONCE, last, message_bytes) for _ in range(sessions)]
        sizes = [first + 2 * step for step in range(steps)]
        return Batch(
            [request(one[:size]) for size in sizes for one in whole][:count],
            [request(one[: first - 2]) for one in whole],
        )

    return make


def history_of(size: int) -> MakeBatch:
    """So many bytes of history that the proxy sees for the first time."""
    count = 40
    probe = len(request(transcript("", count, 0)))
    more = (size - probe) // count
    while len(request(transcript("", count, more))) < size:
        more += 5
    return unseen(count, more)
