"""A model server that costs almost nothing: the scripted upstream of the speed benchmark.

A user message says what to answer, because that survives every proxy unchanged:

    chunks=50 pace=1      50 pieces of text, 1 ms apart (pace=0: all of them in one write)
    chunks=1 pace=0 call  a call of `read_file`, whole in one piece as mlx-lm sends it
    hold=1                five pieces, then silence until the client leaves

Asked for a stream it answers with server-sent events, else with one JSON body of the same reply,
which comes when its last piece would: a model can't answer before it has generated.
Run as `python -m benchmarks.measure.fast_upstream PORT`.
"""

from __future__ import annotations

import asyncio
import functools
import random
import re
import sys
from typing import cast

import orjson
import uvloop

FIRST_WORD = "First"
ID = "chatcmpl-5b9f3c1e7d2a4f60"
CALLED = "read_file"  # offered by whoever asks for a call
CALL = {
    "id": "call_7d41c0a9",
    "type": "function",
    "function": {"name": CALLED, "arguments": '{"path": "src/parser/errors.py", "start_line": 40}'},
}
DIRECTIVE = re.compile(rb"chunks=(\d+) pace=(\d+)( call)?")
HEAD_JSON = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n"
HEAD_SSE = (
    b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ncache-control: no-cache\r\n"
    b"transfer-encoding: chunked\r\n\r\n"
)
NAMES = ("fast", "standard", "longctx", "premium")
MODELS = orjson.dumps(
    {
        "object": "list",
        "data": [{"id": name, "object": "model", "owned_by": "openai"} for name in NAMES],
    }
)


@functools.cache
def words(count: int) -> list[str]:
    """Text that never repeats itself, so that no loop detector has a reason to stir."""
    rng = random.Random(20_261_121)
    letters = "etaoinshrdlucmfwyp"
    return [FIRST_WORD] + [
        " " + "".join(rng.choices(letters, k=rng.randint(2, 8))) for _ in range(count - 1)
    ]


def event(body: dict) -> bytes:
    data = b"data: " + orjson.dumps(body) + b"\n\n"
    return b"%x\r\n%s\r\n" % (len(data), data)


def chunk(delta: dict, finish: str | None = None) -> bytes:
    choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}
    return event(
        {
            "id": ID,
            "object": "chat.completion.chunk",
            "created": 1_780_000_000,
            "model": "fast",
            "system_fingerprint": "fp_44709d6fcb",
            "choices": [choice],
        }
    )


def usage(count: int) -> dict:
    return {"prompt_tokens": 120, "completion_tokens": count, "total_tokens": 120 + count}


@functools.cache
def sse_pieces(count: int, with_usage: bool, call: bool = False) -> list[bytes]:
    role = chunk({"role": "assistant", "content": ""})
    if call:
        deltas: list[dict] = [{"tool_calls": [{"index": 0, **CALL}]}]
    else:
        deltas = [{"content": text} for text in words(count)]
    pieces = [chunk(delta) for delta in deltas]
    pieces[0] = role + pieces[0]
    last = chunk({}, "tool_calls" if call else "stop")
    if with_usage:
        tail = {"id": ID, "object": "chat.completion.chunk", "created": 1_780_000_000}
        last += event({**tail, "model": "fast", "choices": [], "usage": usage(count)})
    done = b"data: [DONE]\n\n"
    pieces[-1] += last + b"%x\r\n%s\r\n" % (len(done), done) + b"0\r\n\r\n"
    return pieces


@functools.cache
def json_answer(count: int, call: bool = False) -> bytes:
    message: dict = {"role": "assistant", "content": "".join(words(count))}
    if call:
        message = {"role": "assistant", "content": None, "tool_calls": [CALL]}
    finish = "tool_calls" if call else "stop"
    body = orjson.dumps(
        {
            "id": ID,
            "object": "chat.completion",
            "created": 1_780_000_000,
            "model": "fast",
            "system_fingerprint": "fp_44709d6fcb",
            "choices": [
                {"index": 0, "message": message, "logprobs": None, "finish_reason": finish}
            ],
            "usage": usage(count),
        }
    )
    return HEAD_JSON % len(body) + body


class FastUpstream(asyncio.Protocol):
    def __init__(self) -> None:
        self.buffer = b""
        self.pieces: list[bytes] = []
        self.next = 0
        self.pace = 0.0
        self.timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        self.loop = asyncio.get_running_loop()

    def connection_lost(self, exc: Exception | None) -> None:
        if self.timer:
            self.timer.cancel()

    def data_received(self, data: bytes) -> None:
        self.buffer += data
        head_end = self.buffer.find(b"\r\n\r\n")
        if head_end < 0:
            return
        head = self.buffer[:head_end].lower()
        at = head.find(b"content-length:")
        length = int(head[at + 15 :].split(b"\r\n", 1)[0]) if at >= 0 else 0
        end = head_end + 4 + length
        if len(self.buffer) < end:
            return
        body, self.buffer = self.buffer[head_end + 4 : end], self.buffer[end:]
        self.answer(head, body)

    def answer(self, head: bytes, body: bytes) -> None:
        if head.startswith(b"get "):
            self.transport.write(HEAD_JSON % len(MODELS) + MODELS)
            return
        streamed = b'"stream":true' in body or b'"stream": true' in body
        with_usage = b"include_usage" in body
        if b"hold=1" in body:
            if streamed:
                self.transport.write(HEAD_SSE + b"".join(sse_pieces(500, with_usage)[:5]))
            return
        found = DIRECTIVE.search(body)
        count, pace = (int(found[1]), int(found[2])) if found else (10, 0)
        call = bool(found and found[3])
        if not streamed:
            self.pieces, self.next = [json_answer(count, call)], 0
            self.timer = self.loop.call_later(pace * (count - 1) / 1000, self.send_next)
            return
        pieces = sse_pieces(count, with_usage, call)
        if not pace:
            self.transport.write(HEAD_SSE + b"".join(pieces))
            return
        self.transport.write(HEAD_SSE + pieces[0])
        self.pieces, self.next, self.pace = pieces, 1, pace / 1000
        if len(pieces) > 1:
            self.timer = self.loop.call_later(self.pace, self.send_next)

    def send_next(self) -> None:
        if self.transport.is_closing():
            return
        self.transport.write(self.pieces[self.next])
        self.next += 1
        if self.next < len(self.pieces):
            self.timer = self.loop.call_later(self.pace, self.send_next)


async def serve(port: int) -> None:
    loop = asyncio.get_running_loop()
    server = await loop.create_server(FastUpstream, "127.0.0.1", port, backlog=4096)
    await server.serve_forever()


if __name__ == "__main__":
    uvloop.run(serve(int(sys.argv[1])))
