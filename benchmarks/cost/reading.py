"""What a chunk costs in the reading path, all stages on: CPU per chunk, and two long calls.

    python -m benchmarks.cost.reading [--runs N]

Each chunk is fed alone, as it comes from the network, and the best of several runs counts: other
work on the machine can only add. The last two rows hold a call that comes in very many pieces: the
memory that it takes until it is judged, and the CPU until it has gone out.
"""

from __future__ import annotations

import argparse
import gc
import random
import time
import tracemalloc
from collections.abc import Iterator
from typing import Any

import orjson

from mlx_stack_proxy import stages
from mlx_stack_proxy.engine.attempt import Attempt
from mlx_stack_proxy.engine.exchange import Exchange
from mlx_stack_proxy.engine.request import Request, Route, UpstreamRequest
from mlx_stack_proxy.engine.session_id import SessionId
from mlx_stack_proxy.settings import DEFAULT_TIERS, Settings

Json = dict[str, Any]
CHUNKS = 3_000
HELD_PIECES, LONG_PIECES = 16_000, 320_000
USAGE = {"prompt_tokens": 900, "completion_tokens": 40, "total_tokens": 940}
PARAMETERS = {
    "type": "object",
    "properties": {"path": {"type": "string"}, "content": {"type": "string"}},
    "required": ["path", "content"],
}
TOOLS = [
    {"type": "function", "function": {"name": name, "parameters": PARAMETERS}}
    for name in ("write_file", "append_file", "read_file")
]
MOST = 2_000_000  # tokens: no call is to be too long
BUDGET = {"max_output_tokens": MOST, "tool_calls": {"apply": "never"}}
WIDE = {name: {**tier, "context_window": MOST} for name, tier in DEFAULT_TIERS.items()}
STAGES = stages.build(Settings(tiers=WIDE, reliability={"token_budget": BUDGET}))  # type: ignore[arg-type]
SESSION = SessionId("derived", "0" * 32, "0" * 32)
TOP = {"id": "chatcmpl-1", "created": 1_780_000_000, "model": "fast"}
_source = random.Random(1)
_WORDS = ["".join(_source.choices("etaoinshrdlu", k=_source.randint(2, 9))) for _ in range(800)]


def words(count: int) -> list[str]:
    return [f" {word}" for word in _source.choices(_WORDS, k=count)]


def frame(delta: Json, finish: str | None = None, **more: Any) -> bytes:
    choice: Json = {"index": 0, "delta": delta}
    if finish:
        choice["finish_reason"] = finish
    payload = {**TOP, "object": "chat.completion.chunk", "choices": [choice], **more}
    return b"data: " + orjson.dumps(payload) + b"\n\n"


def text(**more: Any) -> Iterator[bytes]:
    yield frame({"role": "assistant", "content": ""})
    yield from (frame({"content": word}, **more) for word in words(CHUNKS))


def reasoning() -> Iterator[bytes]:
    yield frame({"role": "assistant", "content": ""})
    yield from (frame({"reasoning_content": word}) for word in words(CHUNKS))


def obfuscated() -> Iterator[bytes]:
    yield frame({"role": "assistant", "content": ""})
    for word in words(CHUNKS):
        yield frame({"content": word}, obfuscation="".join(_source.choices("aX9bQ", k=9)))


def counted() -> Iterator[bytes]:
    for count, one in enumerate(text()):
        usage = {**USAGE, "completion_tokens": count + 1, "total_tokens": 901 + count}
        payload = {**orjson.loads(one[6:]), "usage": usage}
        yield b"data: " + orjson.dumps(payload) + b"\n\n"


def piece(arguments: str) -> Json:
    return {"tool_calls": [{"index": 0, "function": {"arguments": arguments}, "type": "function"}]}


def call(pieces: int = CHUNKS, size: int = 10) -> Iterator[bytes]:
    """``size``: the most characters of a piece."""
    function = {"name": "write_file", "arguments": ""}
    begun = {"index": 0, "id": "call_1", "type": "function", "function": function}
    yield frame({"role": "assistant", "content": None, "tool_calls": [begun]})
    yield frame(piece('{"path": "a.txt", "content": "'))
    yield from (frame(piece(word[:size])) for word in words(pieces))
    yield frame(piece('"}'))


ROWS = {
    "text": (text, 14),
    "reasoning": (reasoning, 14),
    "call": (call, 16),
    "usage in each chunk": (counted, 20),
    "obfuscation": (obfuscated, 20),
}


def attempt() -> Attempt:
    body: Json = {"messages": [{"role": "user", "content": "?"}], "tools": TOOLS}
    body["max_tokens"] = MOST
    request = Request(body, "m", stream=True, include_usage=True)
    exchange = Exchange(request.asked_by(id="r", session=SESSION, route=Route(("fast",))))
    one = Attempt(exchange, UpstreamRequest("fast", dict(body)), STAGES, _fault)
    one.on_request()
    return one


def _fault(stage: str, error: Exception) -> None:
    raise error


def each(frames: list[bytes]) -> float:
    """Return the µs of CPU for each of these frames, fed to one attempt."""
    one = attempt()
    feed = one.feed
    gc.collect()
    began = time.process_time()
    for data in frames:
        feed(data)
    took = time.process_time() - began
    assert one.verdict is None, type(one.verdict)
    return took / len(frames) * 1e6


def held() -> float:
    """Return the MB that an attempt holds once a long call has come."""
    one, frames = attempt(), call(HELD_PIECES)
    gc.collect()
    tracemalloc.start()
    for data in frames:
        one.feed(data)
    size = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    assert one.verdict is None, type(one.verdict)
    return size / 1e6


def long() -> float:
    """Return the seconds of CPU for a very long call, until its last byte has gone out."""
    frames = list(call(LONG_PIECES, 3))
    one = attempt()
    began = time.process_time()
    for data in frames:
        one.feed(data)
    one.feed(frame({}, "tool_calls") + b"data: [DONE]\n\n")
    verdict = one.settle()
    assert verdict is None, type(verdict)
    one.rest()
    return time.process_time() - began


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=7)
    parser.add_argument("--short", action="store_true", help="without the two long calls")
    args = parser.parse_args()
    kinds = {name: list(make()) for name, (make, _) in ROWS.items()}
    best = dict.fromkeys(kinds, float("inf"))
    for _ in range(args.runs):
        for name, frames in kinds.items():
            best[name] = min(best[name], each(frames))
    for name, micros in best.items():
        print(f"{name:28}{micros:8.1f} µs a chunk   goal {ROWS[name][1]}")
    if not args.short:
        print(f"{HELD_PIECES:,} pieces of a call, held{held():10.1f} MB           goal 2")
        print(f"{LONG_PIECES:,} pieces of a call{long():14.1f} s            goal 4")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
