"""Loop detection on recorded cases, by kind and tier, with every miss.

    make score
    python -m benchmarks.measure.score_loops --set duplicate_threshold=4  # another value

Reads ``../shared/corpora/loops.jsonl`` (from the project's root), or the file given, where there is
one. ``portable`` lines are judged at our own defaults: all must come out right. ``threshold`` lines
are at their project's own numbers, as far as we have the parameter. For ``policy`` and ``contract``
lines, on which projects disagree or which are about more than detection, our answer is printed.
Exits with 1 where a portable line is wrong.
"""

from __future__ import annotations

import functools
import json
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from benchmarks import machine
from benchmarks.measure import loop_histories, loop_streams
from benchmarks.measure.corpora import LOOPS, rows
from benchmarks.records import Json

# kind → what we say of a line: whether it came out right, and our answer in words
Judge = Callable[[Json, bool, Json], tuple[bool, str]]


def across_turns(line: Json, own_params: bool, changes: Json) -> tuple[bool, str]:
    """A ``tool_sequence`` or a ``history``.

    A loop must be told or broken by the item it is expected at. Where none is expected, a sequence
    must stay silent throughout and a history must have calmed down by its end.
    """
    params = line.get("params") if own_params else None
    report = loop_histories.run(line["input"], line["kind"], params, changes)
    first, at = report.first, line.get("at")
    said = f"warned {report.warned}, broken {report.broken} ({', '.join(report.detectors)})"
    if line["expected"] == "no_loop":
        quiet = first is None if line["kind"] == "tool_sequence" else not report.at_end
        return quiet, said if first is not None else "silent"
    on_time = first is not None and (at is None or first <= at)
    hard = line.get("hard_at")
    if hard is not None and own_params:
        on_time = on_time and report.broken is not None and report.broken <= hard
    return on_time, said if first is not None else "silent"


def while_generating(line: Json, own_params: bool, changes: Json) -> tuple[bool, str]:
    """A ``content_stream``: a loop must be cut by the piece it is expected at."""
    params = line.get("params") if own_params else None
    at, said = loop_streams.run(line["input"], params or {}, changes)
    if line["expected"] == "no_loop":
        return at is None, said
    by = line.get("at")
    return at is not None and (by is None or at <= by), said


KINDS: dict[str, Judge] = {
    "tool_sequence": across_turns,
    "history": across_turns,
    "content_stream": while_generating,
}


def main(arguments: Sequence[str] | None = None) -> int:
    parser = machine.options("benchmarks.measure.score_loops", __doc__)
    parser.add_argument("path", type=Path, nargs="?", default=LOOPS)
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", type=_change)
    given = parser.parse_args(arguments)
    changes: Json = {}
    for keys, value in given.set:
        section = functools.reduce(lambda inner, key: inner.setdefault(key, {}), keys[:-1], changes)
        section[keys[-1]] = value
    return score(given.path, changes)


def _change(text: str) -> tuple[list[str], Any]:
    """A key of ``loop_detection``, below it separated by dots, and its value as JSON."""
    key, _, value = text.partition("=")
    return key.split("."), json.loads(value)


def score(path: Path, changes: Json) -> int:
    if not path.exists():
        print(f"loops: no sample cases at {path.name}")
        return 0
    right: Counter[tuple[str, str]] = Counter()
    total: Counter[tuple[str, str]] = Counter()
    wrong_portable = 0
    for line in rows(path):
        judge = KINDS.get(line["kind"])
        if judge is None:
            continue
        tier = line["tier"]
        good, said = judge(line, tier != "portable", changes)
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
