"""The tasks: 1 to 6 calls of the demo tools each, with an end that can be checked."""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "deploy" / "local"))

from demo_tiers import questions, tools
from demo_tiers.questions import Task
from demo_tiers.tools import TOOLS, World

__all__ = ["SYSTEM", "TOOLS", "Task", "World", "made", "shortfall", "world"]

SYSTEM = (
    "You call tools. When all is done, state the result in one sentence, "
    "with all its values as the tool gave them."
)
_NUMBER = re.compile(r"-?\d[\d,]*(?:\.\d+)?")

world = questions.world


def made(seed: int, count: int) -> list[Task]:
    """The same tasks for the same seed; their values and ids are in no training data."""
    return list(questions.tasks(seed, "unseen", count))


def shortfall(task: Task, after: World, answer: str) -> str:
    """What is wrong with the end of a task: the "state", or the "answer"; empty: it is right.

    The state must be the expected one, no more and no less. The answer must hold the values of the
    last result, however it puts them.
    """
    if after.statuses != task.statuses or not _same_notes(task, after.notes):
        return "state"
    return "" if all(_stated(fact, answer) for fact in task.facts) else "answer"


def _same_notes(task: Task, saved: Mapping[str, Mapping[str, Any]]) -> bool:
    if saved.keys() != task.notes.keys():
        return False
    for path, wanted in task.notes.items():
        if sorted(map(str, saved[path]["tags"])) != sorted(wanted["tags"]):
            return False
        # A text that the user gave is saved as it is; one that a tool gave may have words around.
        given = wanted["text"] in task.text
        said = str(saved[path]["text"])
        is_held = not given and all(_stated(value, said) for value in wanted["text"].split())
        if said != wanted["text"] and not is_held:
            return False
    return True


def _stated(fact: str, text: str) -> bool:
    """Whether a text holds a value: 1,234.50 is 1234.5, and case is no matter."""
    try:
        number = float(fact)
    except ValueError:
        return fact.casefold() in text.casefold()
    said = (float(one.replace(",", "")) for one in _NUMBER.findall(text))
    return number in said


def plain_tools() -> dict[str, Mapping[str, Any]]:
    """The parameters' JSON schema of each tool, by name."""
    return {name: tools.schema(name) for name in tools.NAMES}
