"""How the checks and repairs of single calls do on recorded cases, by kind.

Reads ``../shared/corpora`` (from the project's root) where it is present: valid calls of real
tools, the same calls each broken in one way, and shapes reported by users. Run it with
``python -m benchmarks.measure.score_mutations [--misses]``.
"""

from __future__ import annotations

import json
import sys
from collections import defaultdict
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from benchmarks.measure.corpora import CORPORA
from mlx_stack_proxy.engine.verdicts import CallFailure
from mlx_stack_proxy.tool_validation.check import Checked, check_call
from mlx_stack_proxy.tool_validation.conversation import Conversation
from mlx_stack_proxy.tool_validation.doubts import Valid, call_doubts
from mlx_stack_proxy.tool_validation.miscopied_ids import Ids
from mlx_stack_proxy.tool_validation.tools import ToolSet, tool_set


@dataclass
class Line:
    """One row of the table."""

    cases: int = 0
    exact: int = 0
    retried: int = 0
    wrong: int = 0
    misses: list[str] = field(default_factory=list)


@dataclass
class Score:
    """The figures; `table` has a line for each kind of mutation."""

    valid_calls: int = 0
    false_rejects: int = 0
    changed: int = 0
    repairable: int = 0
    repaired: int = 0
    delivered_wrong: int = 0
    table: dict[str, Line] = field(default_factory=lambda: defaultdict(Line))
    misses: list[str] = field(default_factory=list)


def score(corpora: Path = CORPORA) -> Score | None:
    """The score on the corpora in a folder; None where there are none."""
    if not (corpora / "bfcl.jsonl").exists():
        return None
    total = Score()
    for row in _rows(corpora / "bfcl.jsonl"):
        tools = tool_set(row["tools"])
        for call in row["valid_calls"]:
            for arguments in _spellings(call["arguments"]):
                checked = _checked(call["name"], arguments, tools, row["messages"])
                _count_valid(total, row["id"], arguments, checked)
    for row in _rows(corpora / "mutations.jsonl"):
        tools = tool_set(row["tools"])
        checked = _checked(row["raw_name"], row["raw_arguments"], tools, row["messages"])
        _count_mutation(total, row, checked)
    for row in _rows(corpora / "issues_malformed.jsonl"):
        if row["where"] in ("name", "arguments"):
            _count_issue(total, row)
    return total


def _checked(name: str, arguments: str, tools: ToolSet, messages: list[Any]) -> Checked:
    """A call's check; what is doubted of it is a failure here: it is asked about once more."""
    checked = check_call(name, arguments, tools)
    schema = tools.compiled(checked.name)
    if checked.failures or schema is None:
        return checked
    given = json.loads(checked.arguments)
    told = Conversation(messages)
    valid = Valid(checked.name, given, schema, told, Ids(told))
    failures = tuple(CallFailure(checked.name, *one) for one in call_doubts(valid))
    return replace(checked, failures=failures)


def _rows(path: Path) -> list[dict[str, Any]]:
    if not path.exists():
        return []
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines() if line]


def _spellings(arguments: Any) -> list[str]:
    return [
        json.dumps(arguments),
        json.dumps(arguments, ensure_ascii=False, separators=(",", ":")),
        json.dumps(arguments, indent=2),
    ]


def _count_valid(total: Score, name: str, arguments: str, checked: Checked) -> None:
    total.valid_calls += 1
    if checked.failures:
        total.false_rejects += 1
        total.misses.append(f"false reject {name}: {checked.failures[0].error}")
    elif checked.repairs or checked.arguments != arguments:
        total.changed += 1
        total.misses.append(f"changed {name}: {checked.repairs}")


def _count_mutation(total: Score, row: dict[str, Any], checked: Checked) -> None:
    repairable = row["class"] == "locally_repairable"
    line = total.table[f"{'repair' if repairable else 'retry '} {row['mutation']}"]
    line.cases += 1
    total.repairable += repairable
    if checked.failures:
        line.retried += 1
        if repairable:
            why = "; ".join(failure.error for failure in checked.failures)
            line.misses.append(f"retried {row['id']}: {row['raw_arguments'][:200]} -> {why}")
        return
    original = row["original"]
    if checked.name == original["name"] and json.loads(checked.arguments) == original["arguments"]:
        line.exact += 1
        total.repaired += repairable
    else:
        line.wrong += 1
        total.delivered_wrong += 1
        line.misses.append(f"WRONG {row['id']}: {checked.name} {checked.arguments[:200]}")


def _count_issue(total: Score, row: dict[str, Any]) -> None:
    """A shape that a user reported; its tools are those of the calls it should give."""
    calls = row["expected_calls"] or [{"name": "tool", "arguments": {}}]
    call = calls[0]
    properties = {key: _schema_of(value) for key, value in (call["arguments"] or {}).items()}
    parameters = {"type": "object", "properties": properties, "required": list(properties)}
    tools = tool_set([{"function": {"name": call["name"], "parameters": parameters}}])
    in_name = row["where"] == "name"
    name = row["text_or_arguments"] if in_name else call["name"]
    checked = _checked(name, "{}" if in_name else row["text_or_arguments"], tools, [])
    line = total.table[f"issue  {row['expected_action']}"]
    line.cases += 1
    wants_retry = row["expected_calls"] is None
    if checked.failures:
        line.retried += 1
        if not wants_retry:
            line.misses.append(f"retried {row['id']}: {checked.failures[0].error}")
    elif (
        not wants_retry
        and checked.name == call["name"]
        and (json.loads(checked.arguments) == (call["arguments"] or {}))
    ):
        line.exact += 1
    else:
        line.wrong += 1
        line.misses.append(f"WRONG {row['id']}: {checked.name} {checked.arguments[:200]}")


def _schema_of(value: Any) -> dict[str, Any]:
    if isinstance(value, list):
        return {"type": "array"}
    return {
        "type": {"str": "string", "dict": "object", "bool": "boolean"}.get(
            type(value).__name__, "number"
        )
    }


def report(total: Score, *, misses: bool) -> str:
    """The score as a table."""
    lines = [f"{'kind':40} {'cases':>6} {'exact':>6} {'retried':>8} {'wrong':>6}"]
    for kind, line in sorted(total.table.items()):
        lines.append(f"{kind:40} {line.cases:6} {line.exact:6} {line.retried:8} {line.wrong:6}")
        if misses:
            lines += [f"    {miss}" for miss in line.misses]
    if misses:
        lines += [f"    {miss}" for miss in total.misses]
    share = 100 * total.repaired / max(1, total.repairable)
    lines.append(
        f"valid calls: {total.valid_calls} · false rejects: {total.false_rejects} · "
        f"changed: {total.changed}"
    )
    lines.append(
        f"repaired exactly: {total.repaired} of {total.repairable} ({share:.1f} %) · "
        f"delivered wrong: {total.delivered_wrong}"
    )
    return "\n".join(lines)


def main() -> int:
    total = score()
    if total is None:
        print("score_mutations: no corpora in ../shared/corpora, nothing to score")
        return 0
    print(report(total, misses="--misses" in sys.argv[1:]))
    return 0


if __name__ == "__main__":
    sys.exit(main())
