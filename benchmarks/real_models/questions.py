"""Single questions with tools from the Berkeley leaderboard, and whether a reply is right."""

from __future__ import annotations

import gzip
import json
import random
import re
from dataclasses import dataclass
from functools import cache
from typing import Any

from benchmarks.measure.corpora import CORPORA
from benchmarks.records import Json
from mlx_stack_proxy.tool_validation.check import Options, check_call
from mlx_stack_proxy.tool_validation.tools import tool_set

FOLDER = CORPORA / "trajectories"
_MAX_TOOLS = 1_700  # characters of a question's tools: small models have little room
# How many of each kind are in 25 questions.
_MIX = {
    "live_multiple": 5,
    "live_simple": 5,
    "simple_python": 5,
    "multiple": 4,
    "parallel": 2,
    "live_irrelevance": 3,
    "irrelevance": 1,
}
_IGNORED = re.compile(r"[ ,./\-_*^']")


@dataclass(frozen=True)
class Question:
    name: str
    kind: str
    messages: list[Json]
    tools: list[Json]
    truth: list[Json] | None  # the calls, each {name: {parameter: [allowed values]}}; None: no call


@cache
def questions() -> list[Question]:
    """Return all questions in a fixed mixed order; [] without the corpora."""
    if not (FOLDER / "bfcl_single.jsonl.gz").exists():
        return []
    with gzip.open(FOLDER / "tools.json.gz") as file:
        tools = json.load(file)
    by_kind: dict[str, list[Question]] = {kind: [] for kind in _MIX}
    seen: set[str] = set()
    with gzip.open(FOLDER / "bfcl_single.jsonl.gz") as file:
        for row in map(json.loads, file):
            question = _question(row, tools)
            if question is not None and question.name not in seen:
                seen.add(question.name)
                by_kind[question.kind].append(question)
    shuffle = random.Random(7).shuffle
    for found in by_kind.values():
        found.sort(key=lambda question: question.name)
        shuffle(found)
    mixed: list[Question] = []
    while any(by_kind.values()):
        block = [by_kind[kind].pop() for kind, n in _MIX.items() for _ in range(n) if by_kind[kind]]
        shuffle(block)
        mixed += block
    return mixed


def _question(row: Json, tools: Json) -> Question | None:
    name, offered = row["tools"], tools[row["tools"]]
    kind = re.sub(r"^bfcl1_|_[0-9-]+$", "", name)
    if kind not in _MIX or len(row["messages"]) > 3 or len(json.dumps(offered)) > _MAX_TOOLS:
        return None
    if row["truth"] is None and "irrelevance" not in kind:
        return None
    messages = [message for message in row["messages"] if message["role"] in ("system", "user")]
    return Question(name, kind, messages, offered, row["truth"])


def verdict(question: Question, reply: Json) -> str:
    """Return one word: right, wrong, needless, prose, invalid, text_call, empty or error."""
    if reply["error"]:
        return "error"
    if calls := reply["tool_calls"]:
        tools, strict = tool_set(question.tools), Options(repair=False)
        if any(check_call(one["name"], one["arguments"], tools, strict).failures for one in calls):
            return "invalid"
        if question.truth is None:
            return "needless"
        found = [(one["name"], json.loads(one["arguments"])) for one in calls]
        return "right" if _same(found, question.truth) else "wrong"
    text = reply["content"].strip()
    if not text:
        return "empty"
    if is_text_call(text, [tool["function"]["name"] for tool in question.tools]):
        return "text_call"
    return "right" if question.truth is None else "prose"


def is_text_call(text: str, names: list[str]) -> bool:
    """Whether a text that the client got was meant as a call."""
    marked = re.search(r'"name"\s*:|"function"\s*:|<tool|"arguments"', text) is not None
    return marked or any(f"{name}(" in text for name in names)


def _same(calls: list[tuple[str, Json]], truth: list[Json]) -> bool:
    left = list(calls)
    for expected in truth:
        ((name, parameters),) = expected.items()
        fitting = (
            call
            for call in left
            if call[0] == name.replace(".", "_") and _fits(call[1], parameters)
        )
        if (call := next(fitting, None)) is None:
            return False
        left.remove(call)
    return not left


def _fits(arguments: Json, truth: Json) -> bool:
    for name, values in truth.items():
        allowed = values if isinstance(values, list) else [values]
        if name not in arguments:
            if "" not in allowed and None not in allowed:
                return False
        elif not any(_equal(arguments[name], value) for value in allowed):
            return False
    return arguments.keys() <= truth.keys()


def _equal(value: Any, expected: Any) -> bool:
    if isinstance(value, bool) or isinstance(expected, bool):
        return value is expected
    if isinstance(value, str) and isinstance(expected, str):
        return _IGNORED.sub("", value).lower() == _IGNORED.sub("", expected).lower()
    if isinstance(value, int | float) and isinstance(expected, int | float):
        return abs(value - expected) < 1e-9
    if isinstance(value, list) and isinstance(expected, list):
        return len(value) == len(expected) and all(map(_equal, value, expected))
    if isinstance(value, dict) and isinstance(expected, dict):
        return _fits(value, expected)
    return bool(value == expected)
