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
    cases = [score.mutation(row) for row in score.rows("mutations.jsonl")]
    cases += [score.text(row) for row in score.rows(score.TEXTS.name)]
    issues = score.rows("issues_malformed.jsonl")
    reported = {row["id"] for row in issues if score.issue_miss(row) is None}
    return reported | {case.id for case in cases if not case.wrong}


def loops() -> set[str]:
    """Loops, and what only looks like one."""
    lines = map(json.loads, LOOPS.read_text("utf-8").splitlines())
    judged = [(line, score_loops.KINDS.get(line["kind"])) for line in lines]
    return {
        line["id"]
        for line, judge in judged
        if judge is not None and judge(line, line["tier"] != "portable", {})[0]
    }
