"""The scripted upstream of the speed benchmark: ``python -m benchmarks.cost.upstream PORT``.

A user message says what to answer, because that survives every proxy unchanged:

    chunks=50 pace=1      50 pieces of text, 1 ms apart (pace=0: all of them in one write)
    chunks=1 pace=0 call  a call of `read_file`, its arguments in so many pieces
    hold=1                five pieces, then silence until the client leaves

Asked for a stream it answers with server-sent events, else with one JSON body of the same reply,
which comes when its last piece would: a model can't answer before it has generated.
"""

from __future__ import annotations

import asyncio
import functools
import random
import re
import sys

import orjson
import uvloop

from tests.support.replies import DONE, Json, chunk, completion, data, usage_chunk
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
DIRECTIVE = re.compile(rb"chunks=(\d+) pace=(\d+)( call)?")
NAMES = ("fast", "standard", "longctx", "premium")


@functools.cache
def words(count: int) -> list[str]:
    """Text that never repeats itself, so that no loop detector has a reason to stir."""
    rng = random.Random(20_261_121)
    letters = "etaoinshrdlucmfwyp"
    return [FIRST_WORD] + [
        " " + "".join(rng.choices(letters, k=rng.randint(2, 8))) for _ in range(count - 1)
    ]


def call(arguments: str) -> Json:
    function = {"name": CALLED, "arguments": arguments}
    return {"id": "call_7d41c0a9", "type": "function", "function": function}


def deltas(count: int, calls: bool) -> list[Json]:
    if not calls:
        return [{"content": text} for text in words(count)]
    if count == 1:  # whole in one piece, as mlx-lm sends it
        whole = '{"path": "src/parser/errors.py", "start_line": 40}'
        return [{"tool_calls": [{"index": 0, **call(whole)}]}]
    pieces = ['{"path": "', *(text[1:] + "/" for text in words(count - 1)[1:]), '"}']
    more = [{"tool_calls": [{"index": 0, "function": {"arguments": one}}]} for one in pieces[1:]]
    return [{"tool_calls": [{"index": 0, **call(pieces[0])}]}, *more]


@functools.cache
def streamed(count: int, pace: int, calls: bool, usage: bool) -> Reply:
    first, *more = (data(chunk(delta)) for delta in deltas(count, calls))
    pieces = [data(chunk({"role": "assistant", "content": ""})) + first, *more]
    pieces[-1] += data(chunk({}, "tool_calls" if calls else "stop"))
    pieces[-1] += (data(usage_chunk()) if usage else b"") + DONE
    if not pace:
        return Reply.sse(b"".join(pieces))
    between = Delay(pace / 1000)
    paced: list[Piece] = [pieces[0]]
    for piece in pieces[1:]:
        paced += [between, piece]
    return Reply.sse(*paced)


@functools.cache
def whole(count: int, pace: int, calls: bool) -> Reply:
    message: Json = {"content": "".join(words(count))}
    if calls:
        (first, *_more) = deltas(1, calls)
        message = {"content": None, "tool_calls": first["tool_calls"]}
    made = Reply.json(orjson.dumps(completion(message, "tool_calls" if calls else "stop")))
    return Reply(made.status, made.headers, (Delay(pace * (count - 1) / 1000), *made.pieces))


def reply_to(asked: Call) -> Reply:
    body = bytes(asked.body)
    stream = b'"stream":true' in body or b'"stream": true' in body
    usage = b"include_usage" in body
    if b"hold=1" in body:
        return Reply.sse(*streamed(500, 1, False, usage).pieces[:9], SILENCE)
    found = DIRECTIVE.search(body)
    count, pace = (int(found[1]), int(found[2])) if found else (10, 0)
    calls = bool(found and found[3])
    return streamed(count, pace, calls, usage) if stream else whole(count, pace, calls)


async def main(port: int) -> None:
    server = ScriptedServer(NAMES, keeps=False)
    server.port = port
    server.always(WhenWhole(reply_to))
    await server.listen()
    await asyncio.Event().wait()


if __name__ == "__main__":
    uvloop.run(main(int(sys.argv[1])))
