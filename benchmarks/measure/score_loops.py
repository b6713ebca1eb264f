"""Loop detection on recorded cases, by kind and tier, with every miss.

    make score

Reads ``../shared/corpora/loops.jsonl`` (from the project's root), or the file given, where there is
one. ``portable`` lines are judged at our own defaults: all must come out right. ``threshold`` lines
are at their project's own numbers, as far as we have the parameter. For ``policy`` and ``contract``
lines, on which projects disagree or which are about more than detection, our answer is printed.
Exits with 1 where a portable line is wrong.
"""

from __future__ import annotations

import itertools
import json
import random
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks import machine
from benchmarks.came import call
from benchmarks.measure.corpora import LOOPS, rows
from benchmarks.records import Json
from mlx_stack_proxy.engine.verdicts import LoopDetected
from mlx_stack_proxy.loop_detection.generation.reply_watch import ReplyWatch
from mlx_stack_proxy.loop_detection.stage import LoopDetection
from mlx_stack_proxy.settings import Settings
from mlx_stack_proxy.wire.reply import Reply
from tests.engine.exchanges import client_request, exchange
from tests.loop_detection.asking import NAMED
from tests.loop_detection.histories import settings
from tests.loop_detection.played import Played
from tests.support.deltas import text_delta, watched

TASK: Json = {"role": "user", "content": "Do the task."}

# Agent histories through the real stage. Two kinds of lines: ``tool_sequence`` (calls, those with
# one ``batch`` in one reply) and ``history`` (user, text, thought, tool). Each is a transcript;
# before each reply the stage sees the request, after it the reply, as it would in the proxy.


@dataclass(frozen=True)
class Report:
    """At which item a loop was first warned of and first broken; which detectors; how it ended.

    A doubt breaks nothing: the next tier is asked, and where it makes the same call, as a recorded
    agent does, the reply goes out.
    """

    warned: int | None
    broken: int | None
    detectors: list[str]
    at_end: bool

    @property
    def first(self) -> int | None:
        found = [at for at in (self.warned, self.broken) if at is not None]
        return min(found) if found else None


def own_settings(params: Json) -> Settings:
    """Our defaults, or a project's own thresholds as far as we have them, too."""
    rules: Json = {}
    if own := {name: params[name] for name in ("warn", "hard", "window") if name in params}:
        rules["identical_calls"] = own  # deer-flow's, which the original design took over
    # Where others count calls, we count laps: the first of the same calls is none.
    if (most := params.get("tool_threshold")) is not None:  # one threshold for everything
        rules |= {"warn_threshold": most - 1, "duplicate_threshold": most - 1}
    laps = {"warn": "warn_threshold", "hard": "duplicate_threshold"}
    rules |= {laps[name]: max(2, n - 1) for name, n in params.items() if name in laps}
    return settings(**rules)


def history_report(items: list[Json], kind: str, params: Json | None = None) -> Report:
    """What the stage says of a line's items, the request after the last one included."""
    messages, ends = transcript(items, kind)
    played = Played(messages, LoopDetection(own_settings(params or {})), NAMED)
    said = sorted([*played.hints, *played.broken], key=lambda one: one[0])
    # The request after the last reply is one more; it may still get a hint.
    return Report(
        ends[played.hints[0][0] - 1] if played.hints else None,
        ends[played.broken[0][0]] if played.broken else None,
        [detector for _, detector in said],
        any(number == len(ends) for number, _ in played.hints)
        or any(number == len(ends) - 1 for number, _ in played.broken),
    )


def transcript(items: list[Json], kind: str) -> tuple[list[Json], list[int]]:
    """The messages, and the item at which each reply ends; before the first is none, -1."""
    messages = [] if kind == "history" and items and "user" in items[0] else [TASK]
    ends, thought = [-1], ""
    for _, group in itertools.groupby(enumerate(items), _batch):
        some = list(group)
        at, item = some[-1]
        if "user" in item:
            messages.append({"role": "user", "content": item["user"]})
            continue
        if "thought" in item:
            thought = item["thought"]
            continue
        made = [(number, one.get("tool", one)) for number, one in some if "text" not in one]
        message: Json = {"role": "assistant", "content": item.get("text")}
        if made:
            message["tool_calls"] = [
                call(f"call_{number}", one["name"], json.dumps(one.get("args", {})))
                for number, one in made
            ]
        if thought:
            message["reasoning_content"], thought = thought, ""
        messages += [message, *(said for number, one in made for said in _answers(one, number))]
        ends.append(at)
    return messages, ends


def _batch(placed: tuple[int, Json]) -> tuple[str, Any]:
    """What the calls of one reply have in common."""
    at, item = placed
    return ("at", at) if item.get("batch") is None else ("batch", item["batch"])


def _answers(item: Json, at: int) -> list[Json]:
    """The message that answers a call; none where the line doesn't say what came back."""
    for key in ("result", "error"):
        if (said := item.get(key)) is not None:
            content = said if isinstance(said, str) else json.dumps(said)
            return [{"role": "tool", "tool_call_id": f"call_{at}", "content": content}]
    return []


# Content streams through the real stage, piece by piece. An item of a stream is a text, or a rule
# that makes several: ``{repeat, times}``, ``{repeat_list, times}``, ``{random: {alphabet, length,
# times, seed}}``, ``{rechunk, of}``.


def pieces(items: list[Any]) -> Iterator[str]:
    for item in items:
        if isinstance(item, str):
            yield item
        elif "repeat" in item:
            yield from [item["repeat"]] * item["times"]
        elif "repeat_list" in item:
            yield from list(pieces(item["repeat_list"])) * item["times"]
        elif "random" in item:
            rule = item["random"]
            source = random.Random(rule["seed"])
            for _ in range(rule["times"]):
                yield "".join(source.choices(rule["alphabet"], k=rule["length"]))
        else:
            whole = "".join(pieces(item["of"] if isinstance(item["of"], list) else [item["of"]]))
            size = item["rechunk"]
            yield from (whole[at : at + size] for at in range(0, len(whole), size))


def watch(given: Settings, tools: Sequence[Json] = ()) -> ReplyWatch:
    """The real stage's watch of a reply to a request that offers these tools."""
    return ReplyWatch(exchange(client_request(tools=list(tools)), tiers=("fast",)), given)


def stream_cut(items: list[Any], params: Json) -> tuple[int | None, str]:
    """The first piece that ends the reply, from 0, and why, in words; None where it never is.

    ``params``: a project's own numbers, so many pieces of such a length; else our defaults.
    """
    generation: Json = {}
    if (times := params.get("content_threshold")) is not None:
        generation = {"min_laps": times, "min_chars": times * params.get("chunk", 1)}
    one, reply, characters = watch(settings(generation=generation)), Reply(), 0
    for at, piece in enumerate(pieces(items)):
        characters += len(piece)
        verdict = watched(one.watch, reply, [text_delta(piece)]) if piece else None
        if isinstance(verdict, LoopDetected):
            return at, f"cut in piece {at}, after {characters} characters"
        if verdict is not None:
            return at, f"piece {at}: {verdict}"
    return None, "silent"


# The score


def across_turns(line: Json, params: Json) -> tuple[bool, str]:
    """A ``tool_sequence`` or a ``history``.

    A loop must be told or broken by the item it is expected at. Where none is expected, a sequence
    must stay silent throughout and a history must have calmed down by its end.
    """
    report = history_report(line["input"], line["kind"], params)
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
    at, said = stream_cut(line["input"], params)
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
