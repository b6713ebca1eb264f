"""Scores the stages on the tool calls of other projects' own tests: a table by project.

    python -m benchmarks.measure.score_peers [--verbose]

Reads ``../shared/corpora/peers`` (from the project's root) where present. Each text goes through
all stages as the reply of a stream. "exact": its calls are delivered, and no others. "asked again":
the reply is refused or doubted, so that the model gets another try. "unread": the text is delivered
as it came, though it holds a call. "wrong": other calls than those meant are delivered. "false":
calls are delivered where none was meant. Exits with 1 where a goal is missed.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter
from typing import Any, Final

from benchmarks.measure.corpora import CORPORA
from benchmarks.measure.score import judged, same

PEERS: Final = CORPORA / "peers"
FILES: Final = ("tool-calls-*.jsonl", "templates-*.jsonl")
KINDS: Final = ("exact", "asked again", "unread", "wrong", "false")
NOTICED_SHARE: Final = 0.98
# Tests that are "wrong" or "false" here, each with the reason why that stays
KNOWN: Final = {
    "tests/test-chat.cpp:3747": (
        r"its parser keeps `\n` of a Python string as two characters; Python reads a line break"
    ),
    "tests/parser/engine/test_gemma4_streaming_reasoning.py"
    "::TestGemma4SchemaCoercionBoolNumberNull::test_null_stays_string_without_null_schema": (
        "a bare `null` for an optional text means that there is none, not the word"
    ),
    "tests/parser/mistral/test_tool_calls.py"
    "::test_extract_tool_calls_parallel_malformed_then_well_formed": (
        "the first call's name stands before its mark, and the call stays text; that is a fault"
    ),
    "test/registered/unit/function_call/test_poolside_v1_detector.py"
    "::TestPoolsideV1Detector::test_truncated_post_value_emits_no_calls": (
        "all values are closed and the server says `stop`: only the last mark is missing"
    ),
}


def kind_of(row: dict[str, Any]) -> str:
    """Return what the stages make of a row, as one of ``KINDS``."""
    expected = [{"name": name, "arguments": arguments} for name, arguments in row["expected"]]
    tools = [tool if "function" in tool else _wrapped(tool) for tool in row["input"]["tools"] or ()]
    result = judged(tools, [], [], row["input"]["text"])
    if result.verdict is not None:
        return "asked again"
    if same(result.calls, expected):
        return "exact"
    if not result.calls:
        return "unread"
    return "wrong" if expected else "false"


def _wrapped(function: dict[str, Any]) -> dict[str, Any]:
    return {"type": "function", "function": function}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--verbose", action="store_true", help="name each row that is not exact")
    asked = parser.parse_args()
    files = sorted(path for pattern in FILES for path in PEERS.glob(pattern))
    if not files:
        print(f"score_peers: nothing in {PEERS}, nothing to score")
        return 0
    total: Counter[str] = Counter()
    known: Counter[str] = Counter()
    print(f"{'file':40}" + "".join(f"{kind:>13}" for kind in KINDS))
    for path in files:
        counts: Counter[str] = Counter()
        for line in path.read_text(encoding="utf-8").splitlines():
            row = json.loads(line)
            kind, reason = kind_of(row), KNOWN.get(row["address"])
            counts[kind] += 1
            if kind in ("wrong", "false"):
                known[kind] += reason is not None
                print(f"    {kind}: {row['address']}: {reason or 'NEW'}")
            elif asked.verbose and kind != "exact":
                print(f"    {kind}: {row['address']} {row['input']['text'][:200]!r}")
        print(f"{path.stem:40}" + "".join(f"{counts[kind]:13}" for kind in KINDS))
        total += counts
    print(f"{'all':40}" + "".join(f"{total[kind]:13}" for kind in KINDS))
    return 0 if _goals_met(total, known) else 1


def _goals_met(total: Counter[str], known: Counter[str]) -> bool:
    """Print whether each goal is met; what is known to be wrong or false doesn't count."""
    noticed, whole = total["exact"] + total["asked again"], total.total()
    new = {kind: total[kind] - known[kind] for kind in ("wrong", "false")}
    goals = {
        f"exact or asked again: {noticed / whole:.1%}, goal 98 %": noticed >= NOTICED_SHARE * whole,
        **{f"{kind}, the known aside: {count}, goal 0": not count for kind, count in new.items()},
    }
    for goal, met in goals.items():
        print(f"{goal}: {'met' if met else 'MISSED'}")
    return all(goals.values())


if __name__ == "__main__":
    sys.exit(main())
