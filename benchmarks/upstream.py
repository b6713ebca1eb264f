"""LiteLLM's part, scripted: what a request says in its words is what it gets, good or bad.

A user message says it, because that survives every proxy unchanged:

    chunks=50 pace=1      50 pieces of text, 1 ms apart (pace=0: all of them in one write)
    chunks=1 pace=0 call  a call of `read_file`, its arguments in so many pieces
    hold=1                five pieces, then silence until the client leaves
    [[fault 7 fast]]      a fault of ``tests.faults.catalogue`` on one tier, or on `all`
    [[look 3]]            a call of `search` with a query of its own
    [[text]]              and the other words of ``WORDS_FOR``

Asked for a stream it answers the first three with server-sent events, else with one JSON body of
the same reply, which comes when its last piece would: a model can't answer before it has generated.
As a process of its own: ``python -m benchmarks.upstream PORT``. Nothing is kept of a call.
"""

from __future__ import annotations

import asyncio
import functools
import random
import re
import sys
from collections.abc import Callable, Iterable
from dataclasses import replace

import orjson
import uvloop

from benchmarks.came import call
from tests.faults.catalogue import BAD_CALL, FAULTS, LAPS, calling, good
from tests.faults.catalogue import whole as whole_reply
from tests.support.replies import (
    DONE,
    Json,
    chunk,
    completion,
    data,
    long_text,
    text_chunks,
    usage_chunk,
)
from tests.support.scripted_server import (
    SILENCE,
    Call,
    Delay,
    Piece,
    Reply,
    ScriptedServer,
    WhenWhole,
)

FIRST_WORD = "First"
CALLED = "read_file"  # offered by whoever asks for a call
NUMBERS = re.compile(rb"chunks=(\d+) pace=(\d+)( call)?")
DIRECTIVE = re.compile(rb"\[\[([a-z]+)(?: (\w+))?(?: (\w+))?\]\]")
EMBEDDING = {
    "object": "list",
    "model": "embedder",
    "data": [{"object": "embedding", "index": 0, "embedding": [0.25] * 64}],
    "usage": {"prompt_tokens": 5, "total_tokens": 5},
}
ROLE, _, END = (data(one) for one in text_chunks(""))
SHORT_WAIT = Delay(0.02)
BIG_CHUNKS, PADDING = 64, "." * 16_000


class Upstream(ScriptedServer):
    def __init__(self, models: tuple[str, ...] = ("fast", "standard")) -> None:
        super().__init__(models, keeps=False)
        self.always(WhenWhole(reply_to))

    def drop_idle(self) -> None:
        """End the connections on which nothing is asked."""
        for connection in list(self.connections):
            if connection.call is None:
                connection.transport.close()


def reply_to(asked: Call) -> Reply:
    body = bytes(asked.body)
    found = NUMBERS.search(body)
    if found or b"hold=1" in body:
        stream = b'"stream":true' in body or b'"stream": true' in body
        usage = b"include_usage" in body
        if not found:
            return Reply.sse(*streamed(500, 1, False, usage).pieces[:9], SILENCE)
        count, pace, calls = int(found[1]), int(found[2]), bool(found[3])
        return streamed(count, pace, calls, usage) if stream else whole(count, pace, calls)
    if asked.target.startswith("/v1/embeddings"):
        return Reply.json(EMBEDDING)
    directives = DIRECTIVE.findall(body)
    if not directives:  # the judge's question, say
        return good(False)
    word, first, second = (part.decode() for part in directives[-1])
    if word == "fault":
        model = re.search(rb'"model": ?"(\w+)"', body)
        if second == "all" or (model is not None and model[1].decode() == second):
            return FAULTS[int(first)].reply
    if word == "look":
        return calling("search", f'{{"query": "quokka {first}"}}')
    return WORDS_FOR[word]() if word in WORDS_FOR else good(b'"tools"' in body)


# In numbers


@functools.cache
def pieces(count: int) -> list[str]:
    """Text that never repeats itself, so that no loop detector has a reason to stir."""
    rng = random.Random(20_261_121)
    letters = "etaoinshrdlucmfwyp"
    return [FIRST_WORD] + [
        " " + "".join(rng.choices(letters, k=rng.randint(2, 8))) for _ in range(count - 1)
    ]


def deltas(count: int, calls: bool) -> list[Json]:
    if not calls:
        return [{"content": text} for text in pieces(count)]
    written = ['{"path": "src/parser/errors.py", "start_line": 40}']  # as mlx-lm sends it
    if count > 1:
        written = ['{"path": "', *(text[1:] + "/" for text in pieces(count - 1)[1:]), '"}']
    found = [call("call_7d41c0a9", CALLED, written[0], index=0)]
    found += [{"index": 0, "function": {"arguments": one}} for one in written[1:]]
    return [{"tool_calls": [one]} for one in found]


@functools.cache
def streamed(count: int, pace: int, calls: bool, usage: bool) -> Reply:
    first, *more = (data(chunk(delta)) for delta in deltas(count, calls))
    made = [data(chunk({"role": "assistant", "content": ""})) + first, *more]
    made[-1] += data(chunk({}, "tool_calls" if calls else "stop"))
    made[-1] += (data(usage_chunk()) if usage else b"") + DONE
    if not pace:
        return Reply.sse(b"".join(made))
    between = Delay(pace / 1000)
    return Reply.sse(made[0], *(part for piece in made[1:] for part in (between, piece)))


@functools.cache
def whole(count: int, pace: int, calls: bool) -> Reply:
    message: Json = {"content": "".join(pieces(count))}
    if calls:
        message = {"content": None, **deltas(1, calls)[0]}
    made = Reply.json(orjson.dumps(completion(message, "tool_calls" if calls else "stop")))
    return replace(made, pieces=(Delay(pace * (count - 1) / 1000), *made.pieces))


# In words


def words(count: int, seed: int) -> list[str]:
    text = long_text(8 * count, seed)
    return [text[at : at + 8] for at in range(0, 8 * count, 8)]


TEXT, SLOW = words(150, 1), words(200, 2)


def say(texts: Iterable[str], *between: Piece) -> Reply:
    said = [part for text in texts for part in (data(chunk({"content": text})), *between)]
    return Reply.sse(ROLE, *said, END, data(usage_chunk()), DONE)


@functools.cache
def big() -> Reply:
    """1 MB, and little text: the text of a reply is kept until its end."""
    texts = words(BIG_CHUNKS, 3)
    padded = [data({**chunk({"content": word}), "padding": PADDING}) for word in texts]
    return Reply.sse(ROLE, *padded, END, DONE)


def never_ending(texts: Iterable[str], field: str = "content") -> Reply:
    """Written a few at a time, so that whoever leaves is noticed."""
    written: list[Piece] = []
    for number, text in enumerate(texts, 1):
        written.append(data(chunk({field: text})))
        if number % 20 == 0:
            written.append(Delay(0))
    return Reply.sse(ROLE, *written, SILENCE)


@functools.cache
def endless(seed: int) -> Reply:
    """Text without a repetition, which only a limit ends."""
    return never_ending(words(3_000, seed))


WRITTEN_CALL = '<tool_call>\n{"name": "search", "arguments": {"query": "quokka"}}\n</tool_call>'
WORDS_FOR: dict[str, Callable[[], Reply]] = {
    "text": functools.cache(lambda: say(TEXT)),
    "slow": functools.cache(lambda: say(SLOW, SHORT_WAIT)),
    "big": big,
    "endless": lambda: endless(random.randrange(8)),
    "thinking": functools.cache(lambda: never_ending(words(3_000, 7), "reasoning_content")),
    "laps": functools.cache(
        lambda: never_ending(LAPS[at : at + 29] for at in range(0, len(LAPS), 29))
    ),
    "repaired": lambda: calling("search", "{'query': 'quokka',}"),
    "rescued": lambda: whole_reply(text_chunks(WRITTEN_CALL)),
    "wrong": lambda: BAD_CALL,
}


async def main(port: int) -> None:
    server = Upstream(("fast", "standard", "longctx", "premium"))
    server.port = port
    await server.listen()
    await asyncio.Event().wait()


if __name__ == "__main__":
    uvloop.run(main(int(sys.argv[1])))
