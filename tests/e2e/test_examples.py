"""The first snippet of docs/agents.md as printed; `make frameworks` runs all the others."""

from __future__ import annotations

import subprocess
import sys

from benchmarks.frameworks.catalogue import FACTS
from benchmarks.frameworks.page import EXAMPLES

from .running_stack import RunningStack


def test_the_sdk_snippet_answers_with_what_only_its_tool_knows(stack: RunningStack) -> None:
    variables = {"OPENAI_BASE_URL": f"{stack.url}/v1", "OPENAI_API_KEY": "local"}
    snippet = EXAMPLES / "openai-sdk" / "agent.py"
    ended = subprocess.run(
        [sys.executable, snippet], env=variables, capture_output=True, text=True, timeout=120
    )
    assert ended.returncode == 0, ended.stderr
    assert all(fact in ended.stdout for fact in FACTS), ended.stdout
