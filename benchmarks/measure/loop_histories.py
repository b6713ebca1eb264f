"""Agent histories through the real stage: what it says of each reply, and at which item.

Two kinds of sample lines: ``tool_sequence`` (calls, those with one ``batch`` in one reply) and
``history`` (user, text, thought, tool). Each becomes a transcript; before each reply the stage sees
the request, after it the reply, as it would in the proxy.
"""

from __future__ import annotations

import itertools
import json
from dataclasses import dataclass
from typing import Any

from benchmarks.came import call
from benchmarks.records import Json
from mlx_stack_proxy.loop_detection.stage import LoopDetection
from mlx_stack_proxy.settings import Settings
from tests.loop_detection.asking import NAMED
from tests.loop_detection.histories import settings as settings_of
from tests.loop_detection.played import Played

TASK: Json = {"role": "user", "content": "Do the task."}


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


def settings(params: Json) -> Settings:
    """Our defaults, or a project's own thresholds as far as we have them, too."""
    rules: Json = {}
    if own := {name: params[name] for name in ("warn", "hard", "window") if name in params}:
        rules["identical_calls"] = own  # deer-flow's, which the original design took over
    # Where others count calls, we count laps: the first of the same calls is none.
    if (most := params.get("tool_threshold")) is not None:  # one threshold for everything
        rules |= {"warn_threshold": most - 1, "duplicate_threshold": most - 1}
    laps = {"warn": "warn_threshold", "hard": "duplicate_threshold"}
    rules |= {laps[name]: max(2, n - 1) for name, n in params.items() if name in laps}
    return settings_of(**rules)


def run(items: list[Json], kind: str, params: Json | None = None) -> Report:
    """What the stage says of a line's items, the request after the last one included."""
    messages, ends = transcript(items, kind)
    played = Played(messages, LoopDetection(settings(params or {})), NAMED)
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
