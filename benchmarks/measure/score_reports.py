"""Plays what users of local models reported, through the whole proxy, and says what comes out.

    python -m benchmarks.measure.score_reports [--verbose] [--only WORD]

Reads ``../shared/corpora/reports.jsonl`` (from the project's root) where present. Each case is
played streamed and whole, in its own dialect: once with a good reply after the reported one, once
with the reported one each time. "right": what the user wanted comes out of all four, "half": out of
those where only the first reply is bad, "wrong": not even there. A case that no row of
``report_cases`` knows, of a report that was found right before, is judged by what came out then;
without that it is "open". "aside" are cases that need a real LiteLLM, or a whole conversation.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from benchmarks.came import call as made
from benchmarks.measure.corpora import CORPORA, rows
from benchmarks.measure.report_cases import FINE, PROMPTS, SERVERS, TEXTS, USAGES, WANTED, Wanted
from benchmarks.measure.score import Goals
from benchmarks.records import Json
from mlx_stack_proxy.wire.thoughts import after_thoughts
from tests.faults.clients import Outcome, read
from tests.faults.spoken import SPOKEN
from tests.support.replies import DONE, USAGE, chunk, completion, data, litellm_error, usage_chunk
from tests.support.running_proxy import running_proxy
from tests.support.scripted_server import Call, Delay, Piece, Reply, ScriptedServer, WhenWhole

NAME: Final = "reports.jsonl"
AGAIN: Final = "RETRIED-OK"
KINDS: Final = ("right", "half", "wrong", "open", "aside")
RIGHT_SHARE: Final = 70 / 73  # of the cases, where the first reply alone is bad
WORDS: Final = ("alpha", "line", "path", "gamma", "beta", "error", "delta", "value", "index")
SETTINGS: Final = {
    "tiers": {"fast": {"model": "fast"}, "standard": {"model": "standard"}},
    "reliability.escalation.chain": ["fast", "standard"],
    "reliability.escalation.max_retries_before_escalate": 3,
    "reliability.tool_validation.max_retries": 3,
    "upstream.stream": "as_requested",
    "observability.log_level": "error",
}


@dataclass(frozen=True)
class Case:
    name: str
    dialect: str
    request: Json
    upstream: Json  # `stream`: a reply as data or its frames; else `status` and `body`; or neither
    wanted: Wanted | None

    def reply(self) -> Reply | WhenWhole:
        """The reported reply, streamed or whole as the request says."""
        if (server := SERVERS.get(self.name)) is not None:
            return WhenWhole(
                lambda call: (
                    litellm_error(*error)
                    if (error := server(call.json()))
                    else _written(call, {"text": "fine"}, USAGE)
                )
            )
        if "status" in self.upstream:
            return Reply.json(self.upstream["body"], self.upstream["status"])
        reply = self.upstream["stream"]
        if isinstance(reply, list):
            return Reply.sse(*map(_piece, reply))
        usage = USAGES.get(self.name, {**USAGE, "completion_tokens": 20})
        return WhenWhole(lambda call: _written(call, reply, usage))

    def good_reply(self) -> WhenWhole:
        calls = [[n, json.dumps(a)] for n, a in self.wanted.calls] if self.wanted else []
        said = {"text": None if calls else AGAIN, "calls": calls}
        return WhenWhole(lambda call: _written(call, said, USAGE))


def _piece(item: Any) -> Piece:
    if isinstance(item, str):
        return item.encode()
    return Delay(item) if isinstance(item, (int, float)) else data(item)


def _written(call: Call, said: Json, usage: Json) -> Reply:
    calls = [made(f"c{i}", n, a, index=i) for i, (n, a) in enumerate(said.get("calls") or ())]
    finish = said.get("finish") or ("tool_calls" if calls else "stop")
    text, thought = said.get("text"), said.get("reasoning")
    if not call.json().get("stream"):
        message: Json = {"content": text, "reasoning_content": thought}
        message |= {"tool_calls": calls} if calls else {}
        return Reply.json({**completion(message, finish), "usage": usage})
    deltas = [
        {"role": "assistant", "content": ""},
        *({"reasoning_content": part} for part in _parts(thought)),
        *({"content": part} for part in _parts(text)),
        *({"tool_calls": [one]} for one in calls),
    ]
    frames = [*(chunk(delta) for delta in deltas), chunk({}, finish), usage_chunk(usage)]
    return Reply.sse(*map(data, frames), DONE)


def _parts(text: str | None, size: int = 7) -> Iterator[str]:
    for start in range(0, len(text or ""), size):
        yield (text or "")[start : start + size]


def cases() -> Iterator[Case | str]:
    """Yield each case; the name of one that can't be played here."""
    for report in rows(CORPORA / NAME):
        for row in report["cases"]:
            yield _case(row, report["verdict"]) if row.get("request") else row["case"]


def _case(row: Json, verdict: str) -> Case:
    name, upstream = row["case"], row["upstream"]
    request = row["request"] if isinstance(row["request"], dict) else _prompt(name)
    if name in TEXTS:
        upstream = {"stream": {"text": TEXTS[name]}}
    upstream = upstream if isinstance(upstream, dict) else {}
    wanted = WANTED.get(name) or (FINE if name in SERVERS else None)
    if wanted is None and verdict == "ok":
        wanted = _as_before(row["got"])
    return Case(name, row["dialect"], request, upstream, wanted)


def _prompt(name: str) -> Json:
    words, most = PROMPTS[name]
    text = " ".join(WORDS[number * 7919 % 9973 % len(WORDS)] for number in range(words))
    body: Json = {"model": "fast", "messages": [{"role": "user", "content": text}]}
    return body | ({"max_tokens": most} if most else {})


def _as_before(got: Json) -> Wanted:
    """What came out of the reply each time, where the report was found right; or the good reply."""
    before = got["stream always"]
    first = got.get("stream then-good", before)
    calls = tuple((name, json.loads(text)) for name, text in first["calls"])
    if before["status"] != 200 or before["error"] or before["calls"] != first["calls"]:
        error = bool(first["error"] or first["status"] != 200)
        return Wanted(calls=calls, only_again=not error, error=error)
    return Wanted((before["text"] or "").strip(), calls)


# What came out


async def played(case: Case, stream: bool, always: bool) -> tuple[Outcome, int]:
    """Return what the client got, and the number of upstream calls."""
    async with ScriptedServer() as upstream:
        upstream.will(case.reply())
        own = always or case.name in SERVERS
        upstream.always(case.reply() if own else case.good_reply())
        async with running_proxy(upstream.url, SETTINGS) as proxy:
            begun = time.monotonic()
            path = SPOKEN[case.dialect].path
            response = await proxy.client.post(path, json={**case.request, "stream": stream})
            seconds = time.monotonic() - begun
            return read(response, seconds, case.dialect), len(upstream.calls)


def fault_of(case: Case, outcome: Outcome, asked: int, always: bool) -> str:
    """Return what is wrong with an outcome; "" if it is right."""
    wanted = case.wanted
    assert wanted is not None
    if outcome.seconds > wanted.seconds:
        return f"{outcome.seconds:.0f} s"
    if outcome.error is not None or outcome.status != 200:
        right = wanted.error or (always and wanted.only_again)
        return "" if right else f"{outcome.status} {outcome.error}"
    found = tuple((name, json.loads(text)) for name, text in outcome.calls)
    text = after_thoughts(outcome.text).strip()  # clients fold them
    if asked > 1 and not always and (found == wanted.calls if wanted.calls else AGAIN in text):
        return "" if not wanted.calls or not text else f"with the call also {text[:80]!r}"
    if wanted.only_again:
        return "" if always else f"not asked again: {found or text[:80]!r}"
    if found != wanted.calls:
        return f"calls {found}, text {text[:80]!r}"
    if wanted.text is not None and text[:300] != wanted.text[:300]:
        return f"text {text[:80]!r}"
    return ""


async def judged(case: Case) -> tuple[str, list[str]]:
    """Return a case's kind, and its faults."""
    if case.wanted is None:
        return "open", []
    faults: dict[bool, list[str]] = {False: [], True: []}
    for always in (False, True):
        for stream in (True, False):
            outcome, asked = await played(case, stream, always)
            if fault := fault_of(case, outcome, asked, always):
                how = f"{'stream' if stream else 'whole'}{', each time' if always else ''}"
                faults[always].append(f"{how}: {fault}")
    kind = "wrong" if faults[False] else "half" if faults[True] else "right"
    return kind, faults[False] + faults[True]


async def score(only: str, verbose: bool) -> Counter[str]:
    counts: Counter[str] = Counter()
    aside: list[str] = []
    for case in cases():
        name = case if isinstance(case, str) else case.name
        if only not in name:
            continue
        kind, faults = ("aside", []) if isinstance(case, str) else await judged(case)
        counts[kind] += 1
        aside += [name] * (kind == "aside")
        if verbose or kind in ("wrong", "half", "open"):
            print(f"    {kind:6} {name}: {'; '.join(faults)[:400]}")
    print(f"aside (they need a real LiteLLM or a whole conversation): {', '.join(aside)}")
    return counts


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--verbose", action="store_true", help="name each case")
    parser.add_argument("--only", default="", help="cases whose name has this in it")
    asked = parser.parse_args()
    if not (CORPORA / NAME).exists():
        print(f"score_reports: no {NAME} in {CORPORA}, nothing to score")
        return 0
    counts = asyncio.run(score(asked.only, asked.verbose))
    print("reported cases: " + ", ".join(f"{counts[kind]} {kind}" for kind in KINDS))
    good, whole = counts["right"] + counts["half"], counts.total() - counts["aside"]
    goals, what = Goals(), "right where the first reply alone is bad"
    goals.judge(what, f"{good} of {whole}", "70 of 73", good >= RIGHT_SHARE * whole)
    return 0 if goals.met else 1


if __name__ == "__main__":
    sys.exit(main())
