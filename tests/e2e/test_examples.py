"""The first snippet of docs/agents.md as printed, and that the page leads to all of them."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from .running_stack import RunningStack

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = ROOT / "examples"
# What only the tool knows: a model that made the answer up would not have it.
FACTS = ("129.5", "EUR", "shipped")


def test_the_sdk_snippet_answers_with_what_only_its_tool_knows(stack: RunningStack) -> None:
    variables = {"OPENAI_BASE_URL": f"{stack.url}/v1", "OPENAI_API_KEY": "local"}
    snippet = EXAMPLES / "openai-sdk" / "agent.py"
    ended = subprocess.run(
        [sys.executable, snippet], env=variables, capture_output=True, text=True, timeout=120
    )
    assert ended.returncode == 0, ended.stderr
    assert all(fact in ended.stdout for fact in FACTS), ended.stdout


def test_the_page_leads_to_every_example() -> None:
    there = {path.relative_to(ROOT).as_posix() for path in EXAMPLES.rglob("*.*")}
    page = (ROOT / "docs" / "agents.md").read_text(encoding="utf-8")
    linked = re.findall(r"\]\(\.\./(examples/[^)]+)\)", page)
    assert {path for path in there if "__pycache__" not in path} == set(linked)
