"""A client's own tools: how it writes, mends and shows a file, and runs a command.

The forms are those of recorded requests and replies of each client.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from benchmarks.clients.scripted import Use
from tests.clients import agents
from tests.clients.agents import Agent


@dataclass(frozen=True)
class Toolbox:
    """`write`: path and text; `mend`: path, the old line and the new one."""

    write: Callable[[Path, str], Use]
    mend: Callable[[Path, str, str], Use]
    show: Callable[[Path], Use]
    run: Callable[[str], Use]


CLAUDE_CODE = Toolbox(
    lambda path, text: Use("Write", {"file_path": str(path), "content": text}),
    lambda path, old, new: Use(
        "Edit", {"file_path": str(path), "old_string": old, "new_string": new}
    ),
    lambda path: Use("Read", {"file_path": str(path)}),
    lambda command: Use("Bash", {"command": command, "description": "Run the test"}),
)


def _shell(command: str) -> Use:
    return Use("exec_command", {"cmd": command})


PATCH = """apply_patch <<'EOF'
*** Begin Patch
*** Update File: {}
@@
-{}
+{}
*** End Patch
EOF"""
CODEX = Toolbox(
    lambda path, text: _shell(f"cat > {path.name} <<'EOF'\n{text}EOF"),
    lambda path, old, new: _shell(PATCH.format(path.name, old, new)),
    lambda path: _shell(f"cat {path.name}"),
    _shell,
)
OPENCODE = Toolbox(
    lambda path, text: Use("write", {"filePath": str(path), "content": text}),
    lambda path, old, new: Use("edit", {"filePath": str(path), "oldString": old, "newString": new}),
    lambda path: Use("read", {"filePath": str(path)}),
    lambda command: Use("bash", {"command": command}),
)

# Directly no `auto` is known: each asks for the first tier, by its name.
CLIENTS: dict[str, tuple[Agent, Toolbox]] = {
    agent.name: (replace(agent, model="fast"), toolbox)
    for agent, toolbox in (
        (agents.CLAUDE_CODE, CLAUDE_CODE),
        (agents.CODEX, CODEX),
        (agents.OPENCODE, OPENCODE),
    )
}
