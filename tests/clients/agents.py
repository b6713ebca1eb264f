"""The agents: how each is installed, set up and started, and what its task is.

An agent is a row of `AGENTS`. Its task uses tools of its own, so that the arguments, the results
and what it says of a bad call are its own, too. It is started as its users start it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from benchmarks.clients.scripted import Say, Turn, Use

Json = dict[str, Any]
ASKED = "Write 'quokka' into made.txt, then show it."
SAID = "made.txt says quokka."
CHAT, MESSAGES, RESPONSES = "/v1/chat/completions", "/v1/messages", "/v1/responses"
PROTOCOLS = {CHAT: "chat completions", MESSAGES: "Messages", RESPONSES: "Responses"}


@dataclass(frozen=True)
class Agent:
    """`name`: what it is chosen by. `package`: on npm; `client`: in `mlx-stack-proxy agents`.

    `path`: where it asks, and `model`: for whom. `turns`: what the model says in its task, for the
    folder it runs in. `start`: what runs it, with what is `asked` of it; `edit`: a filter for what
    `agents` prints, where that is to be pasted. `mark`: a tool that only the requests of its task
    offer.
    """

    title: str
    name: str
    package: str
    client: str
    path: str
    mark: str
    turns: Callable[[Path], list[Turn]]
    start: str
    asked: str = ASKED
    model: str = "auto"
    edit: str = ""
    seconds: float = 120

    def is_task(self, body: Json) -> bool:
        """Whether a request is of its task, and none for a title or the like."""
        return self.mark in offered(body)


def offered(body: Json) -> set[str]:
    """The names of a request's tools, in any protocol."""
    return {
        tool.get("name") or tool.get("function", {}).get("name") for tool in body.get("tools") or ()
    }


def calls(body: Json) -> list[tuple[str, str]]:
    """The calls that a request says were made, with their arguments, in any protocol."""
    found = []
    for message in body.get("messages") or ():
        for call in message.get("tool_calls") or ():
            found.append((call["function"]["name"], call["function"]["arguments"]))
        if isinstance(message.get("content"), list):
            blocks = [one for one in message["content"] if one.get("type") == "tool_use"]
            found += [(one["name"], str(one["input"])) for one in blocks]
    items = body.get("input")
    for item in items if isinstance(items, list) else ():
        if item.get("type") in ("function_call", "custom_tool_call"):
            found.append((item["name"], item.get("arguments") or item["input"]))
    return found


def _turns(*uses: Callable[[str], Use]) -> Callable[[Path], list[Turn]]:
    """A task of these calls, each given the path of the file that it is about."""
    return lambda home: [*(use(str(home / "made.txt")) for use in uses), Say(SAID)]


def _writing(tools: Sequence[str], path: str, text: str = "content", **more: str) -> Any:
    """A task with an agent's tools that write a file, run a command and show the file.

    ``path``, ``text``: its names of the parameters; ``more``: what it says of a command.
    """
    write, run, show = tools
    return _turns(
        lambda made: Use(write, {path: made, text: "quokka\n"}),
        lambda _: Use(run, {"command": "cat made.txt", **more}),
        lambda made: Use(show, {path: made}),
    )


CLAUDE_CODE = Agent(
    title="Claude Code",
    name="claude-code",
    package="@anthropic-ai/claude-code",
    client="claude-code",
    path=MESSAGES,
    mark="Bash",
    turns=_writing(("Write", "Bash", "Read"), "file_path", description="Show the file"),
    start="claude -p {asked} --allowedTools Write,Edit,Bash,Read --output-format text",
)
PATCH = "*** Begin Patch\n*** Add File: made.txt\n+quokka\n*** End Patch\n"
_EXEC = "codex exec --skip-git-repo-check --dangerously-bypass-approvals-and-sandbox"
_CAT = Use("exec_command", {"cmd": "cat made.txt"})
_COUNT = Use("exec_command", {"cmd": "wc -c made.txt"})
_PRINTF = Use("exec_command", {"cmd": "printf 'quokka\\n' > made.txt"})
CODEX = Agent(
    title="Codex",
    name="codex",
    package="@openai/codex",
    client="codex",
    path=RESPONSES,
    mark="exec_command",
    turns=_turns(lambda _: _PRINTF, lambda _: _CAT, lambda _: _COUNT),
    start=f"{_EXEC} {{asked}}",
)
CODEX_PATCH = replace(
    CODEX,
    title="Codex, as a model that it knows",
    name="codex-patch",
    mark="apply_patch",
    turns=_turns(lambda _: Use("apply_patch", {"input": PATCH}), lambda _: _CAT, lambda _: _COUNT),
    start=f"{_EXEC} -m gpt-5.5 {{asked}}",
)
OPENCODE = Agent(
    title="opencode",
    name="opencode",
    package="opencode-ai",
    client="opencode",
    path=CHAT,
    mark="write",
    turns=_writing(("write", "bash", "read"), "filePath"),
    start="opencode run {asked}",
)
OPENCODE_MESSAGES = replace(
    OPENCODE,
    name="opencode-messages",
    path=MESSAGES,
    edit="sed s,@ai-sdk/openai-compatible,@ai-sdk/anthropic,",
)
OPENCODE_RESPONSES = replace(
    OPENCODE,
    name="opencode-responses",
    path=RESPONSES,
    edit="sed s,@ai-sdk/openai-compatible,@ai-sdk/openai,",
)
CONTINUE = Agent(
    title="Continue",
    name="continue",
    package="@continuedev/cli",
    client="continue",
    path=CHAT,
    mark="Write",
    turns=_writing(("Write", "Bash", "Read"), "filepath"),
    start="cn -p --auto {asked}",
)
CONTINUE_MESSAGES = replace(
    CONTINUE,
    name="continue-messages",
    path=MESSAGES,
    edit="sed 's,provider: openai,provider: anthropic,'",
)
CLINE = Agent(
    title="Cline",
    name="cline",
    package="cline",
    client="cline",
    path=CHAT,
    mark="editor",
    turns=_turns(
        lambda made: Use("editor", {"path": made, "new_text": "quokka\n"}),
        lambda _: Use("run_commands", {"commands": ["cat made.txt"]}),
        lambda made: Use("read_files", {"files": [{"path": made}]}),
    ),
    start="cline -P openai-compatible -m auto {asked}",
)
QWEN_CODE = Agent(
    title="Qwen Code",
    name="qwen-code",
    package="@qwen-code/qwen-code",
    client="qwen-code",
    path=CHAT,
    mark="agent",
    turns=_writing(("write_file", "run_shell_command", "read_file"), "file_path"),
    start="qwen -y {asked}",
)

AGENTS = (
    *(CLAUDE_CODE, CODEX, CODEX_PATCH, OPENCODE, OPENCODE_MESSAGES, OPENCODE_RESPONSES),
    *(CONTINUE, CONTINUE_MESSAGES, CLINE, QWEN_CODE),
)
