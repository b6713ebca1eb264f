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
from collections.abc import Iterable, Iterator
from typing import Any

import orjson

from benchmarks.came import call as made
from benchmarks.records import Json
from mlx_stack_proxy import stages
from mlx_stack_proxy.engine.attempt import Attempt
from mlx_stack_proxy.settings import DEFAULT_TIERS, Settings
from tests.engine.exchanges import attempt, client_request, exchange
from tests.support.replies import TOP, USAGE
from tests.tool_validation.calls import WRITE

CHUNKS = 3_000
HELD_PIECES, LONG_PIECES = 16_000, 320_000
MOST = 2_000_000  # tokens: no call is to be too long
BUDGET = {"max_output_tokens": MOST, "tool_calls": {"apply": "never"}}
WIDE = {name: {**tier, "context_window": MOST} for name, tier in DEFAULT_TIERS.items()}
STAGES = stages.build(Settings(tiers=WIDE, reliability={"token_budget": BUDGET}))  # type: ignore[arg-type]
BEGUN: Json = {"role": "assistant", "content": ""}
_source = random.Random(1)
_WORDS = ["".join(_source.choices("etaoinshrdlu", k=_source.randint(2, 9))) for _ in range(800)]


def words(count: int = CHUNKS) -> list[str]:
    return [f" {word}" for word in _source.choices(_WORDS, k=count)]


def frame(delta: Json, finish: str | None = None, **more: Any) -> bytes:
    choice: Json = {"index": 0, "delta": delta} | ({"finish_reason": finish} if finish else {})
    payload = {**TOP, "object": "chat.completion.chunk", "choices": [choice], **more}
    return b"data: " + orjson.dumps(payload) + b"\n\n"


def piece(arguments: str) -> bytes:
    one = {"index": 0, "function": {"arguments": arguments}, "type": "function"}
    return frame({"tool_calls": [one]})


def call(pieces: int = CHUNKS, size: int = 10) -> Iterator[bytes]:
    """``size``: the most characters of a piece."""
    begun = made("call_1", "write_file", "", index=0)
    yield frame({"role": "assistant", "content": None, "tool_calls": [begun]})
    yield piece('{"path": "a.txt", "content": "')
    yield from (piece(word[:size]) for word in words(pieces))
    yield piece('"}')


def usage(count: int) -> Json:
    return {**USAGE, "completion_tokens": count, "total_tokens": USAGE["prompt_tokens"] + count}


def obfuscation() -> str:
    return "".join(_source.choices("aX9bQ", k=9))


# The frames of each row, and its goal
ROWS: dict[str, tuple[list[bytes], int]] = {
    "text": ([frame(BEGUN), *(frame({"content": word}) for word in words())], 14),
    "reasoning": ([frame(BEGUN), *(frame({"reasoning_content": word}) for word in words())], 14),
    "call": ([*call()], 16),
    "usage in each chunk": (
        [frame({"content": word}, usage=usage(at)) for at, word in enumerate(words(), 1)],
        20,
    ),
    "obfuscation": ([frame({"content": w}, obfuscation=obfuscation()) for w in words()], 20),
}


def fed(frames: Iterable[bytes]) -> Attempt:
    asked = client_request(tools=[WRITE], max_tokens=MOST)
    one = attempt(exchange(asked, tiers=("fast",)), stages=STAGES)
    one.on_request()
    for data in frames:
        one.feed(data)
    assert one.verdict is None, type(one.verdict)
    return one


def each(frames: list[bytes]) -> float:
    """Return the µs of CPU for each of these frames, fed to one attempt."""
    gc.collect()
    began = time.process_time()
    fed(frames)
    return (time.process_time() - began) / len(frames) * 1e6


def held() -> float:
    """Return the MB that an attempt holds once a long call has come."""
    gc.collect()
    tracemalloc.start()
    one = fed(call(HELD_PIECES))
    size = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    assert one.verdict is None
    return size / 1e6


def long() -> float:
    """Return the seconds of CPU for a very long call, until its last byte has gone out."""
    frames = [*call(LONG_PIECES, 3), frame({}, "tool_calls") + b"data: [DONE]\n\n"]
    began = time.process_time()
    one = fed(frames)
    verdict = one.settle()
    assert verdict is None, type(verdict)
    one.rest()
    return time.process_time() - began


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=7)
    parser.add_argument("--short", action="store_true", help="without the two long calls")
    args = parser.parse_args()
    for name, (frames, goal) in ROWS.items():
        micros = min(each(frames) for _ in range(args.runs))
        print(f"{name:28}{micros:8.1f} µs a chunk   goal {goal}")
    if not args.short:
        print(f"{HELD_PIECES:,} pieces of a call, held{held():10.1f} MB           goal 2")
        print(f"{LONG_PIECES:,} pieces of a call{long():14.1f} s            goal 4")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
