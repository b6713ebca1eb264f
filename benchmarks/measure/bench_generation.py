"""What it costs to watch a reply while it is written: per chunk, and for 100,000 characters.

    python -m benchmarks.measure.bench_generation

CPU time of this process, best of several runs. The goals: 3 µs for a
chunk of 4 or 5 characters, 0.2 s for 100,000 characters whatever they are. The texts marked with a
star are made to be slow: they repeat as long as they may, and break.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import time
from collections.abc import Callable, Iterable
from functools import partial

from benchmarks.measure import loop_streams
from mlx_stack_proxy.settings import DEFAULT_TIERS, Settings
from mlx_stack_proxy.wire.delta import Delta
from mlx_stack_proxy.wire.reply import Reply
from tests.loop_detection.generation.texts import fibonacci
from tests.support.deltas import call_delta, call_piece, reasoning_delta, text_delta

SIZE = 100_000  # characters
CHUNK_GOAL, TEXT_GOAL = 3.0, 0.2  # µs, s
SETTINGS = Settings(tiers=DEFAULT_TIERS)
PARAMETERS = {"type": "object", "properties": {"query": {"type": "string"}}}
TOOLS = [
    {"type": "function", "function": {"name": name, "parameters": PARAMETERS}}
    for name in ("search", "read_file", "write_file")
]
_source = random.Random(1)
_WORDS = ["".join(_source.choices("etaoinshrdlu", k=_source.randint(2, 9))) for _ in range(800)]


def words(count: int) -> str:
    return " ".join(_source.choices(_WORDS, k=count))


def filled(make: Callable[[int], str]) -> str:
    """Pieces, each made from its number, up to the size."""
    pieces: list[str] = []
    size = 0
    while size < SIZE:
        pieces.append(make(len(pieces)))
        size += len(pieces[-1])
    return "".join(pieces)[:SIZE]


def texts() -> dict[str, str]:
    call = '<tool_call>{"name": "search", "arguments": %s}</tool_call>\n'
    return {
        "prose": words(SIZE)[:SIZE],
        "code": "```python\n" + filled(lambda n: f'    {words(1)} = {words(1)}["{n}"]\n'),
        "a list": filled(lambda n: f"- {words(5)}\n"),
        "a table": filled(lambda n: f"| {n} | {words(1)} | {words(1)} |\n"),
        "JSON": filled(lambda n: json.dumps({"name": words(1), "id": n}) + ",\n"),
        "distinct calls": filled(lambda n: call % json.dumps({"query": words(6)})),
        "one long call": call % json.dumps({"query": words(SIZE)[:SIZE]}),
        "emoji": "".join(chr(0x1F600 + _source.randrange(60)) for _ in range(SIZE)),
        "two letters": "".join(_source.choices("ab", k=SIZE)),
        "* Thue-Morse": "".join("ab"[at.bit_count() % 2] for at in range(SIZE)),
        # In a fence, because a cube of it is a loop in prose.
        "* Fibonacci": "```\n" + fibonacci(SIZE),
        "* all equal": "a" * SIZE,
        "* a^n b": filled(lambda n: "a" * (150 + n * 37 % 49) + "b"),
        "* a^n b, fenced": "```\n" + filled(lambda n: "a" * (1500 + n * 37 % 490) + "b"),
        "* late change": filled(lambda n: "The quick brown fox. " * 9 + f"({n}) "),
        "* nested objects": filled(lambda n: f"commentary to=f{n} " + '{"a":' * 20),
        "* one-line calls": filled(lambda n: f"⏺ {words(1)}: {n}\n"),
        "* calls' beginnings": filled(lambda n: f"<tool_call> {words(1)} "),
        "* open requests": filled(lambda n: f"[TOOL_REQUEST] {words(1)} "),
        "* brackets": "".join(_source.choices('{}"[],: ab', k=SIZE)),
        "* fences": filled(lambda n: _source.choice(("```", "~~~", "\n", "`", " a ", "js"))),
        "* sentences of a word": filled(lambda n: f"{words(1)}. "),
        "* 2.9 long laps": filled(lambda n: (_lap[: 5400 - n]) * 2 + _lap[:4800] + f"<{n}>"),
    }


_lap = words(2000)[:5400]


def looked_at(deltas: Iterable[Delta], tools: bool) -> tuple[float, int, str]:
    """CPU seconds of the watch alone, the deltas taken, and how it ended."""
    watch = loop_streams.watch(SETTINGS, TOOLS if tools else ())
    reply = Reply()
    seconds, taken, verdict = 0.0, 0, None
    for delta in deltas:
        taken += 1
        delta.grown = []
        reply.take(delta)
        start = time.process_time()
        verdict = watch.watch(reply, delta)
        seconds += time.process_time() - start
        if verdict is not None:
            break
    return seconds, taken, type(verdict).__name__ if verdict else ""


def chunks(text: str, make: Callable[[str], Delta] = text_delta) -> list[Delta]:
    source = random.Random(2)
    deltas: list[Delta] = []
    at = 0
    while at < len(text):
        piece = text[at : at + source.choice((4, 5))]
        at += len(piece)
        deltas.append(make(piece))
    return deltas


def best(deltas: list[Delta], runs: int, tools: bool = True) -> tuple[float, int, str]:
    return min(looked_at(deltas, tools) for _ in range(runs))


def third_call() -> list[Delta]:
    """The same long call three times; what it writes is full of braces."""
    code = filled(lambda n: f"function f{n}(a) {{ if (a) {{ return {{b: [{n}]}}; }} }}\n")
    text = json.dumps({"path": "a.js", "content": code})
    return [one for index in range(3) for one in chunks(text, partial(argument, index=index))]


def argument(piece: str, index: int = 0) -> Delta:
    return call_delta(call_piece(piece, index=index))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=5)
    runs = parser.parse_args().runs
    made = texts()
    met = True
    for name, make in (("text", text_delta), ("reasoning", reasoning_delta), ("call", argument)):
        # As reasoning it may be no longer than the limit.
        events = chunks(made["prose"][:49_000], make)
        seconds, taken, _ = best(events, runs)
        each = seconds / taken * 1e6
        met = met and each <= CHUNK_GOAL
        print(f"a chunk of 4 or 5 characters, {name:10}{each:8.2f} µs   goal {CHUNK_GOAL} µs")
    print(f"\n{SIZE:,} characters       in chunks    in one     ended")
    for name, text in made.items():
        small, taken, ended = best(chunks(text), runs)
        whole, _, _ = best([text_delta(text)], runs)
        met = met and max(small, whole) <= TEXT_GOAL
        where = f"{ended} in chunk {taken:,}" if ended else ""
        print(f"{name:22}{small * 1e3:9.1f} ms{whole * 1e3:9.1f} ms   {where}")
    seconds, taken, ended = best(third_call(), runs)
    met = met and seconds <= 3 * TEXT_GOAL
    print(f"{'a call three times':22}{seconds * 1e3:9.1f} ms{'':12}   {ended} in chunk {taken:,}")
    print(f"\ngoals {'met' if met else 'MISSED'}")
    return 0 if met else 1


if __name__ == "__main__":
    sys.exit(main())
