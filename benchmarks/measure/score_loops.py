"""Loop detection on recorded cases, by kind and tier, with every miss.

    make score

Reads ``../shared/corpora/loops.jsonl`` (from the project's root), or the file given, where there is
one. ``portable`` lines are judged at our own defaults: all must come out right. ``threshold`` lines
are at their project's own numbers, as far as we have the parameter. For ``policy`` and ``contract``
lines, on which projects disagree or which are about more than detection, our answer is printed.
Exits with 1 where a portable line is wrong.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path

from benchmarks import machine
from benchmarks.measure import loop_histories, loop_streams
from benchmarks.measure.corpora import LOOPS, rows
from benchmarks.records import Json


def across_turns(line: Json, params: Json) -> tuple[bool, str]:
    """A ``tool_sequence`` or a ``history``.

    A loop must be told or broken by the item it is expected at. Where none is expected, a sequence
    must stay silent throughout and a history must have calmed down by its end.
    """
    report = loop_histories.run(line["input"], line["kind"], params)
    first, at = report.first, line.get("at")
    if first is None:
        return line["expected"] == "no_loop", "silent"
    said = f"warned {report.warned}, broken {report.broken} ({', '.join(report.detectors)})"
    if line["expected"] == "no_loop":
        return line["kind"] != "tool_sequence" and not report.at_end, said
    hard = line.get("hard_at") if line["tier"] != "portable" else None
    is_broken = hard is None or (report.broken is not None and report.broken <= hard)
    return (at is None or first <= at) and is_broken, said


def while_generating(line: Json, params: Json) -> tuple[bool, str]:
    """A ``content_stream``: a loop must be cut by the piece it is expected at."""
    at, said = loop_streams.run(line["input"], params)
    if line["expected"] == "no_loop":
        return at is None, said
    by = line.get("at")
    return at is not None and (by is None or at <= by), said


# kind → what we say of a line at these numbers: whether it came out right, and our answer
KINDS: dict[str, Callable[[Json, Json], tuple[bool, str]]] = {
    "tool_sequence": across_turns,
    "history": across_turns,
    "content_stream": while_generating,
}


def judged(path: Path) -> list[tuple[Json, bool, str]]:
    """Each line of a kind that we know, whether it came out right, and our answer in words."""
    lines = [line for line in rows(path) if line["kind"] in KINDS]
    params = [line.get("params") or {} if line["tier"] != "portable" else {} for line in lines]
    return [
        (line, *KINDS[line["kind"]](line, own)) for line, own in zip(lines, params, strict=True)
    ]


def main(arguments: Sequence[str] | None = None) -> int:
    parser = machine.options("benchmarks.measure.score_loops", __doc__)
    parser.add_argument("path", type=Path, nargs="?", default=LOOPS)
    path = parser.parse_args(arguments).path
    if not path.exists():
        print(f"loops: no sample cases at {path.name}")
        return 0
    right: Counter[tuple[str, str]] = Counter()
    total: Counter[tuple[str, str]] = Counter()
    wrong_portable = 0
    for line, good, said in judged(path):
        tier = line["tier"]
        total[line["kind"], tier] += 1
        right[line["kind"], tier] += good
        if not good or tier == "policy":
            word = "ours" if tier in ("policy", "contract") else "WRONG"
            print(f"  {word:5} {tier:9} {line['id']:32} expected {line['expected']}: {said}")
        wrong_portable += tier == "portable" and not good
    for (kind, tier), count in sorted(total.items()):
        print(f"loops: {kind:15} {tier:9} {right[kind, tier]}/{count}")
    return 1 if wrong_portable else 0


if __name__ == "__main__":
    sys.exit(main())
