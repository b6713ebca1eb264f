"""The recorded cases of tool calls and loops: which come out right, with a row left out or not."""

from __future__ import annotations

import json
from unittest import mock

from benchmarks.ablation.rows import Row
from benchmarks.measure import score, score_loops
from benchmarks.measure.corpora import LOOPS


def right(row: Row) -> set[str]:
    """The ids of the cases that come out right without a row, of those that it may be about."""
    if row.is_of_loops:
        with row.out():
            return loops()
    with mock.patch.object(score, "STAGES", row.stages(score.SETTINGS)):
        return tool_calls()


def tool_calls() -> set[str]:
    """Mutations, texts and reported shapes."""
    found = {row["id"] for row in score.rows("mutations.jsonl") if _mutation_is_right(row)}
    found |= {row["id"] for row in score.rows(score.TEXTS.name) if _text_is_right(row)}
    issues = score.rows("issues_malformed.jsonl")
    return found | {row["id"] for row in issues if score.issue_miss(row) is None}


def _mutation_is_right(row: score.Json) -> bool:
    """Delivered as it was, or asked again, which is right where no repair is certain."""
    calls = [(row["raw_name"], row["raw_arguments"])]
    result = score.judged(row["tools"], row["messages"], calls)
    if result.verdict is not None:
        return bool(row["class"] != "locally_repairable")
    return score.same(result.calls, [row["original"]])


def _text_is_right(row: score.Json) -> bool:
    tools = row.get("tools") or row.get("tools_inferred") or []
    result = score.judged(tools, [], [], row["text"])
    wanted = row["expected_tool_calls"]
    return result.verdict is None and score.same(result.calls, wanted)


def loops() -> set[str]:
    """Loops, and what only looks like one."""
    found = set()
    for raw in LOOPS.read_text("utf-8").splitlines():
        line = json.loads(raw)
        judge = score_loops.KINDS.get(line["kind"])
        if judge is not None and judge(line, line["tier"] != "portable", {})[0]:
            found.add(line["id"])
    return found
