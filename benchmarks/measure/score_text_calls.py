"""Scores the rescue of text calls on a corpus: a table by format, with the ids of the misses.

    python -m benchmarks.measure.score_text_calls [FILE.jsonl]

Without an argument it reads `../shared/corpora/text_tool_calls.jsonl`, and says so where there is
none. A line holds `text`, `tools` (or `tools_inferred`) and `expected_tool_calls`.
"""

from __future__ import annotations

import json
import random
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.measure.corpora import TEXTS
from mlx_stack_proxy.tool_validation.text_calls import Holdback, Rescued, rescue
from mlx_stack_proxy.tool_validation.tools import ToolSet
from mlx_stack_proxy.wire.call import Call


@dataclass
class Score:
    """The figures of one format: how many lines, which went wrong and how."""

    cases: int = 0
    exact: int = 0
    misses: list[str] = field(default_factory=list)
    false_calls: list[str] = field(default_factory=list)
    uneven_streams: list[str] = field(default_factory=list)


def score(path: Path) -> dict[str, Score]:
    """Score every line of `path`, by its format.

    A miss is a line whose calls differ from what is expected in name, arguments (as JSON) or
    order; a false call is any call where none is expected; an uneven stream is a line whose
    result depends on how its text is cut.
    """
    scores: dict[str, Score] = {}
    for line in path.read_text(encoding="utf-8").splitlines():
        row = json.loads(line)
        entry = scores.setdefault(row["format"], Score())
        tools = tools_of(row)
        found = rescue(row["text"], tools)
        entry.cases += 1
        if _plain(found.calls) == _expected(row):
            entry.exact += 1
        elif not row["expected_tool_calls"]:
            entry.false_calls.append(row["id"])
        else:
            entry.misses.append(row["id"])
        if any(streamed != found for streamed in _streamed(row["text"], tools)):
            entry.uneven_streams.append(row["id"])
    return scores


def tools_of(row: Mapping[str, Any]) -> ToolSet:
    """The tools of a line."""
    tools = {}
    for tool in row.get("tools") or row.get("tools_inferred") or ():
        function = tool.get("function", tool)
        tools[function["name"]] = function.get("parameters") or {}
    return ToolSet(tools)


def _plain(calls: tuple[Call, ...]) -> list[tuple[str, str]]:
    return [(call.name, _canonical(call.arguments)) for call in calls]


def _expected(row: Mapping[str, Any]) -> list[tuple[str, str]]:
    return [
        (call["name"], _canonical(json.dumps(call["arguments"])))
        for call in row["expected_tool_calls"]
    ]


def _canonical(text: str) -> str:
    try:
        return json.dumps(_numbers(json.loads(text)), sort_keys=True)
    except ValueError:
        return f"unparsed: {text}"


def _numbers(value: Any) -> Any:
    """42.0 and 42 are the same JSON number."""
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, list):
        return [_numbers(item) for item in value]
    if isinstance(value, dict):
        return {key: _numbers(item) for key, item in value.items()}
    return value


def _streamed(text: str, tools: ToolSet) -> Iterator[Rescued]:
    for seed in range(4):
        cuts = random.Random(seed)
        holdback = Holdback(tools)
        flowed, at = "", 0
        while at < len(text):
            size = 1 if seed == 0 else cuts.randint(1, 12)
            flowed += holdback.feed(text[at : at + size])
            at += size
        rest = holdback.finish()
        yield Rescued(rest.calls, flowed + rest.content, rest.unknown)


def table(scores: Mapping[str, Score]) -> str:
    """The scores as text, one line a format and one for all."""
    lines = [f"{'format':24}{'cases':>7}{'exact':>7}{'missed':>8}{'false':>7}  which"]
    for name, entry in sorted(scores.items()):
        which = " ".join([*entry.misses, *entry.false_calls])
        if entry.uneven_streams:
            which += " uneven: " + " ".join(entry.uneven_streams)
        lines.append(_line(name, entry, which))
    total = Score()
    for entry in scores.values():
        total.cases += entry.cases
        total.exact += entry.exact
        total.misses += entry.misses
        total.false_calls += entry.false_calls
    lines.append(_line("all", total, f"{total.exact / max(total.cases, 1):.1%} exact"))
    return "\n".join(lines)


def _line(name: str, entry: Score, which: str) -> str:
    counts = f"{entry.cases:7}{entry.exact:7}{len(entry.misses):8}{len(entry.false_calls):7}"
    return f"{name:24}{counts}  {which}"


def main() -> None:
    path = Path(sys.argv[1]) if len(sys.argv) > 1 else TEXTS
    if not path.exists():
        print(f"text calls: no corpus at {path}, nothing scored")
        return
    print(table(score(path)))


if __name__ == "__main__":
    main()
