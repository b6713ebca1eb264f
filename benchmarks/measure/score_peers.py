"""Scores the stages on other projects' own tests: tool calls by project, and JSON Schema's values.

    python -m benchmarks.measure.score_peers [--verbose]

Reads ``../shared/corpora/peers`` (from the project's root) where present. Each text goes through
all stages as the reply of a stream. "exact": its calls are delivered, and no others. "asked again":
the reply is refused or doubted, so that the model gets another try. "unread": the text is delivered
as it came, though it holds a call. "wrong": other calls than those meant are delivered. "false":
calls are delivered where none was meant.

Each value of JSON Schema's own test suite is a parameter of a call. An invalid one is to be refused
or repaired. Aside are formats and contents, which nobody must assert, and remote schemas. Exits
with 1 where a goal is missed.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from typing import Any, Final

from benchmarks.measure.corpora import CORPORA, rows
from benchmarks.measure.score import Goals, judged, same
from tests.tool_validation.calls import tool

PEERS: Final = CORPORA / "peers"
FILES: Final = ("tool-calls-*.jsonl", "templates-*.jsonl")
SCHEMAS: Final = "json-schema-test-suite.jsonl"
ASIDE: Final = ("/format", "/content.json", "/refRemote.json")
MAX_DELIVERED: Final = 3  # invalid values
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
    "test/registered/unit/function_call/test_poolside_v1_detector.py"
    "::TestPoolsideV1Detector::test_truncated_post_value_emits_no_calls": (
        "all values are closed and the server says `stop`: only the last mark is missing"
    ),
}


def kind_of(row: dict[str, Any]) -> str:
    """Return what the stages make of a row, as one of ``KINDS``."""
    expected = [{"name": name, "arguments": arguments} for name, arguments in row["expected"]]
    offered = row["input"]["tools"] or ()
    tools = [one if "function" in one else {"type": "function", "function": one} for one in offered]
    result = judged(tools, [], [], row["input"]["text"])
    if result.verdict is not None:
        return "asked again"
    if same(result.calls, expected):
        return "exact"
    if not result.calls:
        return "unread"
    return "wrong" if expected else "false"


def value_kind(row: dict[str, Any]) -> str:
    """Return what the stages make of a value, as one word after its validity."""
    name, arguments = "do_it", row["input"]["arguments"]
    result = judged([tool(name, row["input"]["schema"])], [], [(name, arguments)])
    if result.verdict is not None:
        return f"{row['expected']} {'doubted' if result.verdict.doubt else 'refused'}"
    delivered = result.calls == [(name, arguments)]
    return f"{row['expected']} {'delivered' if delivered else 'changed'}"


def score_values(verbose: bool, goals: Goals) -> None:
    """Print how values fare: few invalid ones may pass, and all valid ones have to."""
    counts: Counter[str] = Counter()
    for row in rows(PEERS / SCHEMAS):
        kind = value_kind(row)
        if kind == "invalid delivered" and any(part in row["address"] for part in ASIDE):
            kind = "invalid aside"
        counts[kind] += 1
        if verbose and kind in ("invalid delivered", "valid refused", "valid changed"):
            print(f"    {kind}: {row['address']}")
    print(f"\n{SCHEMAS}: " + ", ".join(f"{counts[kind]} {kind}" for kind in sorted(counts)))
    lost, delivered = counts["valid refused"] + counts["valid changed"], counts["invalid delivered"]
    goals.judge("valid values: refused or changed", f"{lost}", "0", not lost)
    met = delivered <= MAX_DELIVERED
    goals.judge("invalid values: delivered", f"{delivered}", f"{MAX_DELIVERED}", met)


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
        for row in rows(path):
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
    goals, noticed = Goals(), total["exact"] + total["asked again"]
    share = noticed / total.total()
    goals.judge("calls: exact or asked again", f"{share:.1%}", "98 %", share >= NOTICED_SHARE)
    for kind in ("wrong", "false"):
        new = total[kind] - known[kind]  # what is known doesn't count
        goals.judge(f"calls: {kind}, the known aside", f"{new}", "0", not new)
    score_values(asked.verbose, goals)
    return 0 if goals.met else 1


if __name__ == "__main__":
    sys.exit(main())
