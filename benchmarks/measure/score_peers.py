"""Scores the stages on the tool calls of other projects' own tests: a table by project.

    python -m benchmarks.measure.score_peers [--verbose]

Reads ``../shared/corpora/peers`` (from the project's root) where present. Each text goes through
all stages as the reply of a stream. "exact": its calls are delivered, and no others. "asked again":
the reply is refused or doubted, so that the model gets another try. "unread": the text is delivered
as it came, though it holds a call. "wrong": other calls than those meant are delivered. "false":
calls are delivered where none was meant.
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
    total: Counter[str] = Counter()
    print(f"{'file':40}" + "".join(f"{kind:>13}" for kind in KINDS))
    for path in sorted(path for pattern in FILES for path in PEERS.glob(pattern)):
        counts: Counter[str] = Counter()
        for line in path.read_text(encoding="utf-8").splitlines():
            row = json.loads(line)
            kind = kind_of(row)
            counts[kind] += 1
            if asked.verbose and kind != "exact":
                print(f"    {kind}: {row['address']} {row['input']['text'][:200]!r}")
        print(f"{path.stem:40}" + "".join(f"{counts[kind]:13}" for kind in KINDS))
        total += counts
    print(f"{'all':40}" + "".join(f"{total[kind]:13}" for kind in KINDS))
    return 1 if total["wrong"] or total["false"] else 0


if __name__ == "__main__":
    sys.exit(main())
