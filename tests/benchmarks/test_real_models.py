"""What the benchmark of real models calls right, and what its tables say."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from benchmarks.real_models import models, report, stack
from benchmarks.real_models.questions import Question, verdict
from benchmarks.real_models.tasks import TASKS, Folder
from tests.benchmarks.tables import narrow
from tests.tool_validation.calls import SEARCH

ASKED = Question(
    "q", "simple_python", [], [SEARCH], [{"search": {"query": ["Quokka"], "limit": [""]}}]
)
NONE_DUE = Question("q", "irrelevance", [], [SEARCH], None)
GOOD: dict[str, Any] = {"name": "search", "arguments": '{"query": "quokka"}'}


def reply(*calls: dict[str, Any], content: str = "", error: str = "") -> dict[str, Any]:
    return {"tool_calls": list(calls), "content": content, "error": error}


@pytest.mark.parametrize(
    ("question", "answer", "word"),
    [
        (ASKED, reply(GOOD), "right"),
        (ASKED, reply({**GOOD, "arguments": '{"query": "wombat"}'}), "wrong"),
        (ASKED, reply(GOOD, GOOD), "wrong"),
        (ASKED, reply({**GOOD, "arguments": "{}"}), "invalid"),
        (ASKED, reply({**GOOD, "arguments": '{"query": "x",}'}), "invalid"),
        (ASKED, reply({**GOOD, "name": "find"}), "invalid"),
        (ASKED, reply(content='{"name": "search"}'), "text_call"),
        (ASKED, reply(content="I can't."), "prose"),
        (ASKED, reply(content=" "), "empty"),
        (ASKED, reply(error="status 502"), "error"),
        (NONE_DUE, reply(GOOD), "needless"),
        (NONE_DUE, reply(content="I can't."), "right"),
    ],
)
def test_verdicts(question: Question, answer: dict[str, Any], word: str) -> None:
    assert verdict(question, answer) == word


def test_a_task_is_checked_by_its_folder(tmp_path: Path) -> None:
    folder, rename = Folder(tmp_path), next(task for task in TASKS if task.name == "rename")
    assert not rename.done(folder, "")
    assert "not allowed" in folder.use("run_command", {"command": "cat /etc/hosts; ls ~"})
    assert folder.use("read_file", {"path": "../x"}).startswith("Error: outside")
    folder.use("run_command", {"command": "mv old.txt new.txt"})
    assert rename.done(folder, "")


def test_the_tables() -> None:
    chosen = models.given(["small=a.gguf", "large=b.gguf"])
    titles = stack.titles(chosen)
    assert list(titles) == ["direct:small", "direct:large", "proxy:all", "proxy:large"]
    common = {"name": "q", "category": "simple_python", "seconds": 2.0, "attempts": 2}
    single = {"verdict": "right", "repairs": "guided", "tool_calls": [GOOD], **common}
    task = {"done": False, "end": "error 502", "error": "", **common}
    kinds = {
        "single": {"proxy:all": {0: single}},
        "agent": {"proxy:all": {0: task}, "direct:small": {}},
        "toolcallbench": {},
    }
    text = narrow(report.whole(kinds, titles))
    assert "| a → b, through the proxy | 1 | 1 (100 %, 21 to 100) | 1 (100 %, 21 to 100) |" in text
    assert "| 0 (0 %, 0 to 79) | 0 | 1 × 502 |" in text
    assert "ToolCallBench" not in text and "directly" not in text
    short = narrow(report.short(kinds["single"], titles))
    assert short.splitlines()[2:] == ["| a → b, through the proxy | 1 | 1 | 1 |"]
