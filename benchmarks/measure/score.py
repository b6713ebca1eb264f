"""The figures of tool-call handling on recorded cases, with the misses.

    make score

Reads ``../shared/corpora`` (from the project's root) where present. Everything goes through all
stages, as the reply of a stream. Exits with 1 where a goal is missed.
"""

from __future__ import annotations

import json
import sys
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from benchmarks.came import call
from benchmarks.measure import score_real_models
from benchmarks.measure.corpora import CORPORA, TEXTS, canonical, rows
from benchmarks.records import Json
from mlx_stack_proxy import stages
from mlx_stack_proxy.engine.verdicts import InvalidToolCall, Verdict
from mlx_stack_proxy.settings import DEFAULT_TIERS, Settings
from mlx_stack_proxy.wire.sse import DONE_FRAME, data_frame
from tests.engine.exchanges import Faults, attempt, client_request, exchange
from tests.support.replies import chunk
from tests.tool_validation.calls import parameters, tool

SETTINGS = Settings(tiers=DEFAULT_TIERS)
STAGES = stages.build(SETTINGS)

REPAIRED_SHARE = TEXT_SHARE = "98 %"
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
        deltas.append({"tool_calls": [call(f"c{place}", name, arguments, index=place)]})
    for one in [*map(chunk, deltas), chunk({}, "tool_calls" if calls else "stop")]:
        yield data_frame(json.dumps(one).encode())
    yield DONE_FRAME


def same(found: list[tuple[str, str]], wanted: list[Json]) -> bool:
    """Whether these calls, and no others, are delivered. Arguments `null`: any will do."""
    if len(found) != len(wanted):
        return False
    return all(
        name == one["name"]
        and (one["arguments"] is None or canonical(arguments) == canonical(one["arguments"]))
        for (name, arguments), one in zip(found, wanted, strict=True)
    )


# What each corpus says of the stages


class Found(NamedTuple):
    """One case. ``wrong``: what is wrong with it, in a word; empty: it came out right."""

    id: str
    wrong: str = ""
    why: str = ""

    def __str__(self) -> str:
        return f"{self.id}: {self.wrong}: {self.why}"


def valid_calls(row: Json) -> Iterator[Found]:
    """Replies with valid calls of real tools, which have to come out byte by byte as they went in.

    In three spellings, all calls of a reply together and each alone.
    """
    spellings: list[Json] = [{}, {"ensure_ascii": False, "separators": (",", ":")}, {"indent": 2}]
    spelled = [
        [(one["name"], json.dumps(one["arguments"], **how)) for one in row["valid_calls"]]
        for how in spellings
    ]
    for calls in [*spelled, *([one] for one in spelled[0])]:
        result = judged(row["tools"], row["messages"], calls, "Let me see. ")
        yield Found(row["id"], "" if result.untouched else "lost", result.errors or "changed")


def mutation(row: Json) -> Found:
    """A damaged call: right is a repair to what it was, or to ask again where none is certain."""
    result = judged(row["tools"], row["messages"], [(row["raw_name"], row["raw_arguments"])])
    if result.verdict is not None:
        certain = row["class"] == "locally_repairable"
        return Found(row["id"], "retried" if certain else "", result.errors)
    right = same(result.calls, [row["original"]])
    return Found(row["id"], "" if right else "delivered", str(result.calls))


def text(row: Json) -> Found:
    """Calls that are written as text, and texts that are none."""
    tools, wanted = row.get("tools") or row.get("tools_inferred") or [], row["expected_tool_calls"]
    result = judged(tools, [], [], row["text"])
    if result.calls and not wanted:
        return Found(row["id"], "false", str(result.calls))
    if row.get("negative_kind") == "unknown_tool" and not result.calls:
        return Found(row["id"])  # left as text, or asked again: both are right
    right = result.verdict is None and same(result.calls, wanted)
    why = f"({row['format']}): {result.errors or result.calls}"
    return Found(row["id"], "" if right else "missed", why)


def is_uneven(row: Json) -> bool:
    """Whether a text is read otherwise when it comes character by character."""
    tools = row.get("tools") or row.get("tools_inferred") or []
    whole, each = (judged(tools, [], [], row["text"], size=size) for size in (5, 1))
    return whole.calls != each.calls


def issue_miss(row: Json) -> str | None:
    """What is wrong with how the stage handles a shape that users reported; None: nothing.

    Its tools are those of the calls it should give. Where a line calls a repair ambiguous, asking
    the model again is right too; delivering anything else never is.
    """
    wanted = row["expected_calls"]
    text = row["text_or_arguments"]
    try:
        named = json.loads(text)
    except ValueError:
        named = None
    # The arguments that broken ones name, so that only what is broken is judged.
    calls = wanted or [{"name": "tool", "arguments": named if isinstance(named, dict) else {}}]
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


def _tools_of(calls: list[Json]) -> list[Json]:
    tools = {}
    for one in calls:
        properties = {key: _schema_of(value) for key, value in (one["arguments"] or {}).items()}
        tools[one["name"]] = tool(one["name"], parameters(*properties, **properties))
    return list(tools.values())


def _schema_of(value: Any) -> Json:
    if isinstance(value, list):
        return {"type": "array"}
    types = {"str": "string", "dict": "object", "bool": "boolean"}
    return {"type": types.get(type(value).__name__, "number")}


# The report


class Goals:
    """Prints each goal as it is judged, and remembers whether all were met."""

    def __init__(self, say: Callable[[str], None] = print) -> None:
        self.say = say
        self.met = True

    def most(self, what: str, misses: Sequence[object], most: int = 0) -> None:
        """At most so many of them."""
        self.judge(what, str(len(misses)), f"{most}", len(misses) <= most, misses)

    def share(self, what: str, cases: Sequence[Found], misses: Sequence[Found], least: str) -> None:
        """At least so many per cent of the cases are right."""
        right, count = sum(not one.wrong for one in cases), len(cases)
        figure = f"{right} of {count} ({right / max(1, count):.1%})"
        met = right >= float(least.removesuffix(" %")) / 100 * count
        self.judge(what, figure, least, met, misses)

    def judge(
        self, what: str, figure: str, goal: str, met: bool, misses: Sequence[object] = ()
    ) -> None:
        self.met = self.met and met
        self.say(f"{what:52}{figure:>16}  goal {goal:12} {'met' if met else 'MISSED'}")
        for miss in misses:
            self.say(f"    {str(miss)[:300]}")


def run(say: Callable[[str], None] = print) -> int:
    if not (CORPORA / "bfcl.jsonl").exists():
        say(f"score: no corpora in {CORPORA}, nothing to score")
        return 0
    goals = Goals(say)

    def wrong(cases: Iterable[Found], *kinds: str) -> list[Found]:
        return [one for one in cases if one.wrong in kinds]

    lost = wrong((one for row in rows(CORPORA / "bfcl.jsonl") for one in valid_calls(row)), "lost")
    goals.most("valid calls: rejected or changed", lost)
    mutated = [(row, mutation(row)) for row in rows(CORPORA / "mutations.jsonl")]
    certain = [one for row, one in mutated if row["class"] == "locally_repairable"]
    goals.share("mutations: repaired exactly", certain, wrong(certain, "retried"), REPAIRED_SHARE)
    delivered = wrong((one for _, one in mutated), "delivered")
    goals.most("mutations: delivered wrong", delivered, WRONG)
    texts = [text(row) for row in rows(TEXTS)]
    goals.share("text calls: exact", texts, wrong(texts, "missed"), TEXT_SHARE)
    goals.most("text calls: false", wrong(texts, "false"))
    uneven = [row["id"] for row in rows(TEXTS) if is_uneven(row)]
    goals.most("text calls: cut otherwise, else read", uneven)
    issues = [(row, issue_miss(row)) for row in rows(CORPORA / "issues_malformed.jsonl")]
    misses = [f"{row['id']} ({row['expected_action']}): {miss}" for row, miss in issues if miss]
    goals.most(f"reported shapes: of {len(issues)} not as they say", misses, ISSUE_EXCEPTIONS)
    _real_models(goals)
    return 0 if goals.met else 1


def _real_models(goals: Goals) -> None:
    """Judge the replies of real models: each readable call is read, and none is read wrong."""
    by_kind: dict[str, list[Found]] = defaultdict(list)
    for row in rows(CORPORA / score_real_models.NAME):
        kind = score_real_models.kind_of(row, judged)
        said = Found(row["id"], "" if kind == "read" else kind, repr(row["reply"]["content"]))
        by_kind[kind].append(said)
    read, unread, wrong = (by_kind.pop(kind, []) for kind in ("read", "unread", "wrong"))
    goals.share("real models' calls: read", [*read, *unread, *wrong], unread, "100 %")
    goals.most("real models' calls: wrong", wrong)
    others = (f"{kind}: {len(replies)}" for kind, replies in sorted(by_kind.items()))
    goals.say(f"    other replies: {'; '.join(others)}")


if __name__ == "__main__":
    sys.exit(run())
