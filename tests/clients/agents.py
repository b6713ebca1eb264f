"""The agents: how each is installed and started, and what its task is.

An agent is a row of `AGENTS`. Its task uses tools of its own, so that the arguments, the results
and what it says of a bad call are its own, too.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.frameworks.scripted import Say, Turn, Use

Json = dict[str, Any]
ASKED = "Write 'quokka' into made.txt, then show it."
SAID = "made.txt says quokka."


@dataclass(frozen=True)
class Agent:
    """`install`: a line of npm, put into a folder of the agent's own. `package`: for its version.

    `path`: where it asks. `turns`: what the model says in its task, for the folder it runs in;
    `command`: what starts it; `variables`: of its environment, for the proxy's URL. `failed`:
    whether a request tells the model that a call of its own was a bad one.
    """

    title: str
    folder: str
    package: str
    install: str
    path: str
    turns: Callable[[Path], list[Turn]]
    command: str
    variables: Callable[[str], Mapping[str, str]]
    failed: Callable[[Json], bool]
    seconds: float = 120


def _claude_turns(home: Path) -> list[Turn]:
    made = str(home / "made.txt")
    return [
        Use("Write", {"file_path": made, "content": "quokka\n"}),
        Use("Bash", {"command": "cat made.txt", "description": "Show the file"}),
        Use("Read", {"file_path": made}),
        Say(SAID),
    ]


def _claude_variables(url: str) -> Mapping[str, str]:
    models = ("ANTHROPIC_MODEL", "ANTHROPIC_DEFAULT_HAIKU_MODEL", "ANTHROPIC_SMALL_FAST_MODEL")
    return {
        **dict.fromkeys(models, "auto"),
        "ANTHROPIC_BASE_URL": url,
        "ANTHROPIC_AUTH_TOKEN": "local",
        "CLAUDE_CODE_MAX_CONTEXT_TOKENS": "200000",
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        "DISABLE_AUTOUPDATER": "1",
    }


def _claude_failed(body: Json) -> bool:
    blocks = [
        block
        for message in body.get("messages", ())
        if isinstance(message["content"], list)
        for block in message["content"]
    ]
    return any(block.get("is_error") for block in blocks)


CLAUDE_CODE = Agent(
    title="Claude Code",
    folder="claude-code",
    package="@anthropic-ai/claude-code",
    install="npm install -g --no-audit --no-fund @anthropic-ai/claude-code",
    path="/v1/messages",
    turns=_claude_turns,
    command=f'claude -p "{ASKED}" --allowedTools Write,Bash,Read --output-format text',
    variables=_claude_variables,
    failed=_claude_failed,
)


def _codex_turns(home: Path) -> list[Turn]:
    commands = ("printf 'quokka\\n' > made.txt", "cat made.txt", "wc -c made.txt")
    return [*(Use("exec_command", {"cmd": one}) for one in commands), Say(SAID)]


def _codex_failed(body: Json) -> bool:
    """A command that ran says how it ended; whatever else a call's result says is an error."""
    results = [item for item in body["input"] if item.get("type") == "function_call_output"]
    return any("exited with code 0" not in str(item["output"]) for item in results)


CODEX = Agent(
    title="Codex",
    folder="codex",
    package="@openai/codex",
    install="npm install -g --no-audit --no-fund @openai/codex",
    path="/v1/responses",
    turns=_codex_turns,
    command=" ".join(
        (
            "codex exec --skip-git-repo-check --dangerously-bypass-approvals-and-sandbox -m auto",
            "-c model_provider=local -c 'model_providers.local.name=\"local\"'",
            '-c "model_providers.local.base_url=\\"$URL/v1\\""',
            "-c model_providers.local.wire_api=responses",
            "-c model_providers.local.env_key=OPENAI_API_KEY",
            f'"{ASKED}"',
        )
    ),
    variables=lambda url: {"URL": url, "OPENAI_API_KEY": "local"},
    failed=_codex_failed,
)

AGENTS = (CLAUDE_CODE, CODEX)
