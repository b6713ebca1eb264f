"""Agent histories through the real stage: what it says of each reply, and at which item.

Two kinds of sample lines: ``tool_sequence`` (calls, those with one ``batch`` in one reply) and
``history`` (user, text, thought, tool). Each becomes a transcript; before each reply the stage sees
the request, after it the reply, as it would in the proxy.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from mlx_stack_proxy.loop_detection.stage import LoopDetection
from mlx_stack_proxy.settings import Settings
from tests.loop_detection.asking import NAMED
from tests.loop_detection.histories import settings as settings_of
from tests.loop_detection.played import Played

Json = dict[str, Any]
TASK: Json = {"role": "user", "content": "Do the task."}


@dataclass(frozen=True)
class Step:
    """An assistant message, the items it was made of, and what comes before it."""

    before: list[Json]
    message: Json
    last_item: int


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


def settings(params: Json | None = None, changes: Json | None = None) -> Settings:
    """Our defaults, or a project's own thresholds as far as we have them, too.

    ``changes``: to the rules of ``loop_detection`` in any case, as its section has them.
    """
    params = params or {}
    rules: Json = {}
    if own := {name: params[name] for name in ("warn", "hard", "window") if name in params}:
        rules["identical_calls"] = own  # deer-flow's, which the original design took over
    # Where others count calls, we count laps: the first of the same calls is none.
    if (most := params.get("tool_threshold")) is not None:  # one threshold for everything
        rules |= {"warn_threshold": most - 1, "duplicate_threshold": most - 1}
    laps = {"warn": "warn_threshold", "hard": "duplicate_threshold"}
    rules |= {laps[name]: max(2, n - 1) for name, n in params.items() if name in laps}
    return settings_of(**{**rules, **(changes or {})})


def run(
    items: list[Json], kind: str, params: Json | None = None, changes: Json | None = None
) -> Report:
    """What the stage says of a line's items, the request after the last one included."""
    messages: list[Json] = []
    ends = [-1]  # the item at which each reply ends; before the first is none
    for step in _sequence(items) if kind == "tool_sequence" else _history(items):
        messages += [*step.before, step.message]
        ends.append(step.last_item)
    messages += _trailing(items, kind)
    stage = LoopDetection(settings(params, changes))
    played = Played(messages, stage, NAMED)
    said = sorted([*played.hints, *played.broken], key=lambda one: one[0])
    # The request after the last reply is one more; it may still get a hint.
    return Report(
        ends[played.hints[0][0] - 1] if played.hints else None,
        ends[played.broken[0][0]] if played.broken else None,
        [detector for _, detector in said],
        any(number == len(ends) for number, _ in played.hints)
        or any(number == len(ends) - 1 for number, _ in played.broken),
    )


# From items to messages


def _call(item: Json, at: int) -> Json:
    function = {"name": item["name"], "arguments": json.dumps(item.get("args", {}))}
    return {"id": f"call_{at}", "type": "function", "function": function}


def _answers(item: Json, at: int) -> list[Json]:
    """The message that answers a call; none where the line doesn't say what came back."""
    for key in ("result", "error"):
        if (said := item.get(key)) is not None:
            content = said if isinstance(said, str) else json.dumps(said)
            return [{"role": "tool", "tool_call_id": f"call_{at}", "content": content}]
    return []


def _sequence(items: list[Json]) -> Iterator[Step]:
    groups: list[list[int]] = []
    for at, item in enumerate(items):
        batch = item.get("batch")
        if groups and batch is not None and items[groups[-1][-1]].get("batch") == batch:
            groups[-1].append(at)
        else:
            groups.append([at])
    before = [TASK]
    for group in groups:
        calls = [_call(items[at], at) for at in group]
        message: Json = {"role": "assistant", "content": None, "tool_calls": calls}
        yield Step(before, message, group[-1])
        before = [answer for at in group for answer in _answers(items[at], at)]


def _history(items: list[Json]) -> Iterator[Step]:
    before = [] if items and "user" in items[0] else [TASK]
    thought = ""
    for at, item in enumerate(items):
        message: Json
        if "user" in item:
            before.append({"role": "user", "content": item["user"]})
            continue
        if "thought" in item:
            thought = item["thought"]
            continue
        if "tool" in item:
            calls = [_call(item["tool"], at)]
            message = {"role": "assistant", "content": None, "tool_calls": calls}
        else:
            message = {"role": "assistant", "content": item.get("text", "")}
        if thought:
            message["reasoning_content"] = thought
            thought = ""
        yield Step(before, message, at)
        before = _answers(item["tool"], at) if "tool" in item else []


def _trailing(items: list[Json], kind: str) -> list[Json]:
    """What comes after the last reply: its answers, and what the user said then."""
    if not items:
        return []
    if kind == "tool_sequence":
        batch = items[-1].get("batch")
        last = [
            at for at, item in enumerate(items) if batch is not None and item.get("batch") == batch
        ]
        return [a for at in (last or [len(items) - 1]) for a in _answers(items[at], at)]
    trailing: list[Json] = []
    for at in range(len(items) - 1, -1, -1):
        if "user" in items[at]:
            trailing.insert(0, {"role": "user", "content": items[at]["user"]})
        elif "thought" not in items[at]:
            return [*(_answers(items[at]["tool"], at) if "tool" in items[at] else []), *trailing]
    return trailing
