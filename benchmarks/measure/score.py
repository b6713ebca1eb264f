"""The figures of tool-call handling on recorded cases, with the misses.

    make score

Reads ``../shared/corpora`` (from the project's root) where present. Everything goes through all
stages, as the reply of a stream. Exits with 1 where a goal is missed.
"""

from __future__ import annotations

import json
import sys
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.measure import score_real_models
from benchmarks.measure.corpora import CORPORA, TEXTS, canonical
from mlx_stack_proxy import stages
from mlx_stack_proxy.engine.verdicts import InvalidToolCall, Verdict
from mlx_stack_proxy.settings import DEFAULT_TIERS, Settings
from mlx_stack_proxy.wire.sse import DONE_FRAME, data_frame
from tests.engine.exchanges import Faults, attempt, client_request, exchange
from tests.support.replies import chunk

Json = dict[str, Any]
SETTINGS = Settings(tiers=DEFAULT_TIERS)
STAGES = stages.build(SETTINGS)

REPAIRED_SHARE = 0.98
TEXT_SHARE = 0.98
WRONG = 1  # mutations that are delivered wrong, and were not asked about once more
ISSUE_EXCEPTIONS = 2


@dataclass(frozen=True)
class Judged:
    """What the stages made of a reply: the bytes in and out, the calls delivered, the verdict."""

    came: bytes
    went: bytes
    calls: list[tuple[str, str]]
    verdict: Verdict | None
    faults: list[str]

    @property
    def untouched(self) -> bool:
        return self.verdict is None and self.came == self.went and not self.faults

    @property
    def errors(self) -> str:
        if isinstance(self.verdict, InvalidToolCall):
            return "; ".join(one.error for one in self.verdict.failures)
        return repr(self.verdict) if self.verdict else "; ".join(self.faults)


def judged(
    tools: list[Json],
    messages: list[Json],
    calls: list[tuple[str, str]],
    text: str = "",
    size: int = 5,
) -> Judged:
    """A reply with these calls (name, arguments) and this text, as a stream, through the stages.

    ``size``: characters of the text in a chunk.
    """
    asked = messages or [{"role": "user", "content": "?"}]
    whole = exchange(client_request(messages=asked, tools=tools, model="m"), tiers=("fast",))
    faults = Faults()
    one = attempt(whole, stages=STAGES, faults=faults)
    one.on_request()
    came = b"".join(_frames(calls, text, size))
    went = one.feed(came)
    verdict = one.settle()
    if verdict is None:
        went += one.rest()
    delivered = one.reply.choices[0].tool_calls if verdict is None else []
    found = [(call.name, call.arguments) for call in delivered]
    return Judged(came, went, found, verdict, [f"{stage}: {error!r}" for stage, error in faults])


def _frames(calls: list[tuple[str, str]], text: str, size: int) -> Iterator[bytes]:
    deltas: list[Json] = [{"role": "assistant", "content": ""}]
    deltas += [{"content": text[at : at + size]} for at in range(0, len(text), size)]
    for place, (name, arguments) in enumerate(calls):
        function = {"name": name, "arguments": arguments}
        call = {"index": place, "id": f"c{place}", "type": "function", "function": function}
        deltas.append({"tool_calls": [call]})
    for one in [*map(chunk, deltas), chunk({}, "tool_calls" if calls else "stop")]:
        yield data_frame(json.dumps(one).encode())
    yield DONE_FRAME


def rows(name: str, corpora: Path = CORPORA) -> list[Json]:
    """The lines of one corpus; none where it is absent."""
    path = corpora / name
    if not path.exists():
        return []
    return [json.loads(line) for line in path.read_text(encoding="utf-8").split("\n") if line]


def same(found: list[tuple[str, str]], wanted: list[Json]) -> bool:
    """Whether these calls, and no others, are delivered. Arguments `null`: any will do."""
    if len(found) != len(wanted):
        return False
    return all(
        name == call["name"]
        and (call["arguments"] is None or canonical(arguments) == canonical(call["arguments"]))
        for (name, arguments), call in zip(found, wanted, strict=True)
    )


# What each corpus says of the stage: the ids of the misses, and why


def false_rejects() -> tuple[int, list[str]]:
    """Replies with valid calls of real tools that don't come out byte by byte as they went in."""
    cases, misses = 0, []
    for row in rows("bfcl.jsonl"):
        if not row["valid_calls"]:
            continue
        spelled = [
            [(call["name"], text) for call, text in zip(row["valid_calls"], texts, strict=True)]
            for texts in zip(
                *(_spellings(call["arguments"]) for call in row["valid_calls"]),
                strict=True,
            )
        ]
        for calls in [*spelled, *([one] for one in spelled[0])]:
            cases += 1
            result = judged(row["tools"], row["messages"], calls, "Let me see. ")
            if not result.untouched:
                misses.append(f"{row['id']}: {result.errors or 'changed'}")
    return cases, misses


def _spellings(arguments: Any) -> list[str]:
    return [
        json.dumps(arguments),
        json.dumps(arguments, ensure_ascii=False, separators=(",", ":")),
        json.dumps(arguments, indent=2),
    ]


def mutations() -> tuple[int, int, list[str], list[str]]:
    """Repairable mutations, those repaired exactly, the others, and what was delivered wrong."""
    cases, exact, misses, wrong = 0, 0, [], []
    for row in rows("mutations.jsonl"):
        result = judged(row["tools"], row["messages"], [(row["raw_name"], row["raw_arguments"])])
        repairable = row["class"] == "locally_repairable"
        cases += repairable
        if result.verdict is not None:
            if repairable:
                misses.append(f"{row['id']} retried: {result.errors}")
        elif same(result.calls, [row["original"]]):
            exact += repairable
        else:
            wrong.append(f"{row['id']}: {result.calls}")
    return cases, exact, misses, wrong


def texts() -> tuple[int, int, list[str], list[str], list[str]]:
    """Texts, those that come out exactly, the others, and calls where none was meant.

    The last are those that are read otherwise when they come character by character.
    """
    cases, exact, misses, false_calls, uneven = 0, 0, [], [], []
    for row in rows(TEXTS.name):
        cases += 1
        tools = row.get("tools") or row.get("tools_inferred") or []
        result = judged(tools, [], [], row["text"])
        if judged(tools, [], [], row["text"], size=1).calls != result.calls:
            uneven.append(row["id"])
        if result.calls and not row["expected_tool_calls"]:
            false_calls.append(f"{row['id']}: {result.calls}")
        elif row.get("negative_kind") == "unknown_tool" and not result.calls:
            exact += 1  # left as text, or asked again: both are right
        elif result.verdict is None and same(result.calls, row["expected_tool_calls"]):
            exact += 1
        else:
            misses.append(f"{row['id']} ({row['format']}): {result.errors or result.calls}")
    return cases, exact, misses, false_calls, uneven


def issue_miss(row: Json) -> str | None:
    """What is wrong with how the stage handles a shape that users reported; None: nothing.

    Its tools are those of the calls it should give. Where a line calls a repair ambiguous, asking
    the model again is right too; delivering anything else never is.
    """
    wanted = row["expected_calls"]
    text = row["text_or_arguments"]
    calls = wanted or [{"name": "tool", "arguments": _first_keys(text)}]
    tools = _tools_of(calls)
    if row["where"] == "content":
        result = judged(tools, [], [], text)
    elif row["where"] == "name":
        result = judged(tools, [], [(text, "" if calls[0]["arguments"] else "{}")])
    else:
        result = judged(tools, [], [(calls[0]["name"], text)])
    if result.verdict is not None:
        may_retry = wanted is None or row["expected_action"].endswith("_ambiguous")
        return None if may_retry else f"retried: {result.errors}"
    if wanted is not None and same(result.calls, wanted):
        return None
    return f"delivered: {result.calls}"


def _first_keys(text: str) -> Json:
    """The arguments that broken ones name, so that only what is broken is judged."""
    try:
        value = json.loads(text)
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}


def _tools_of(calls: list[Json]) -> list[Json]:
    tools = {}
    for call in calls:
        given = call["arguments"] or {}
        properties = {key: _schema_of(value) for key, value in given.items()}
        schema = {"type": "object", "properties": properties, "required": list(properties)}
        function = {"name": call["name"], "parameters": schema}
        tools[call["name"]] = {"type": "function", "function": function}
    return list(tools.values())


def _schema_of(value: Any) -> Json:
    if isinstance(value, list):
        return {"type": "array"}
    types = {"str": "string", "dict": "object", "bool": "boolean"}
    return {"type": types.get(type(value).__name__, "number")}


# The report


class _Goals:
    """Prints each goal as it is judged, and remembers whether all were met."""

    def __init__(self, say: Callable[[str], None]) -> None:
        self.say = say
        self.met = True

    def judge(self, what: str, figure: str, goal: str, met: bool, misses: list[str]) -> None:
        self.met = self.met and met
        self.say(f"{what:52}{figure:>16}  goal {goal:12} {'met' if met else 'MISSED'}")
        for miss in misses:
            self.say(f"    {miss[:300]}")


def run(say: Callable[[str], None] = print) -> int:
    if not (CORPORA / "bfcl.jsonl").exists():
        say(f"score: no corpora in {CORPORA}, nothing to score")
        return 0
    goals = _Goals(say)
    cases, misses = false_rejects()
    lost = f"{len(misses)} of {cases}"
    goals.judge("valid calls: rejected or changed", lost, "0", not misses, misses)
    cases, exact, misses, wrong = mutations()
    enough = exact >= REPAIRED_SHARE * cases
    goals.judge("mutations: repaired exactly", _share(exact, cases), "98 %", enough, misses)
    goals.judge("mutations: delivered wrong", str(len(wrong)), "1", len(wrong) <= WRONG, wrong)
    cases, exact, misses, false_calls, uneven = texts()
    enough = exact >= TEXT_SHARE * cases
    goals.judge("text calls: exact", _share(exact, cases), "98 %", enough, misses)
    goals.judge("text calls: false", str(len(false_calls)), "0", not false_calls, false_calls)
    goals.judge("text calls: cut otherwise, else read", str(len(uneven)), "0", not uneven, uneven)
    issues = rows("issues_malformed.jsonl")
    found = [(row, issue_miss(row)) for row in issues]
    misses = [f"{row['id']} ({row['expected_action']}): {miss}" for row, miss in found if miss]
    few = len(misses) <= ISSUE_EXCEPTIONS
    handled = f"{len(issues) - len(misses)} of {len(issues)}"
    goals.judge("reported shapes: handled as they say", handled, "all but 2", few, misses)
    _real_models(goals)
    return 0 if goals.met else 1


def _real_models(goals: _Goals) -> None:
    """Judge the replies of real models: each readable call is read, and none is read wrong."""
    by_kind: dict[str, list[str]] = defaultdict(list)
    for row in rows(score_real_models.NAME):
        kind = score_real_models.kind_of(row, judged)
        by_kind[kind].append(f"{row['id']}: {row['reply']['content']!r}")
    read, unread, wrong = (by_kind.pop(kind, []) for kind in ("read", "unread", "wrong"))
    figure = _share(len(read), len(read) + len(unread) + len(wrong))
    goals.judge("real models' calls: read", figure, "100 %", not unread, unread)
    goals.judge("real models' calls: wrong", str(len(wrong)), "0", not wrong, wrong)
    others = (f"{kind}: {len(replies)}" for kind, replies in sorted(by_kind.items()))
    goals.say(f"    other replies: {'; '.join(others)}")


def _share(part: int, whole: int) -> str:
    return f"{part} of {whole} ({part / max(1, whole):.1%})"


if __name__ == "__main__":
    sys.exit(run())
