"""`mlx-stack-proxy agents` as a user types it."""

from __future__ import annotations

import json
import subprocess
import tomllib

import pytest
import yaml

from benchmarks.frameworks.page import PAGE, sections
from mlx_stack_proxy.operator.agents.clients import CLIENTS, Client
from tests.operator.conftest import Ran, Typed

CONFIG = """\
server: {port: 4200, api_keys: ["*"]}
tiers:
  fast: {context_window: 8192}
  big: {context_window: 131072}
  cloud: {local: false, context_window: 1000000}
reliability: {escalation: {aliases: {"claude-opus-*": big}}}
"""


@pytest.fixture
def agents(typed: Typed) -> Agents:
    typed.write(CONFIG)
    return Agents(typed)


class Agents:
    """Runs `agents`."""

    def __init__(self, typed: Typed) -> None:
        self.typed = typed
        self.home = typed.home

    def __call__(self, *words: str) -> Ran:
        return self.typed("agents", *words)

    def printed(self, *words: str) -> str:
        ran = self(*words)
        assert ran.code == 0
        return ran.out


def exported(text: str, **given: str) -> dict[str, str]:
    """The variables that a shell has after these lines."""
    env = {"PATH": "/usr/bin:/bin", **given}
    ran = subprocess.run(
        ["bash", "-ec", f"{text}\nenv -0"], env=env, capture_output=True, text=True, check=True
    )
    return dict(one.split("=", 1) for one in ran.stdout.split("\0") if one)


def test_all_are_listed(agents: Agents) -> None:
    lines = agents.printed().splitlines()
    assert [line.split()[0] for line in lines] == [one.name for one in CLIENTS]
    assert "claude-code" in lines[0] and "~/.claude/settings.json" in lines[0]


def test_claude_code_is_told_the_windows_of_the_tier(agents: Agents) -> None:
    small = exported(agents.printed("claude-code"))
    assert small["ANTHROPIC_BASE_URL"] == "http://127.0.0.1:4200"
    assert small["ANTHROPIC_AUTH_TOKEN"] == "local"
    assert small["CLAUDE_CODE_MAX_CONTEXT_TOKENS"] == "8192"
    assert small["CLAUDE_CODE_MAX_OUTPUT_TOKENS"] == "2048"
    assert small["CLAUDE_CODE_SIMPLE"] == "1"
    big = exported(agents.printed("claude-code", "--model", "claude-opus-4-8"))
    assert big["ANTHROPIC_MODEL"] == "claude-opus-4-8"
    assert big["CLAUDE_CODE_MAX_CONTEXT_TOKENS"] == "131072"
    assert "CLAUDE_CODE_SIMPLE" not in big


def test_codex_is_told_the_window(agents: Agents) -> None:
    found = tomllib.loads(agents.printed("codex", "--model", "big"))
    assert (found["model"], found["model_context_window"]) == ("big", 131072)
    assert found["model_provider"] in found["model_providers"]


def test_a_tier_in_the_cloud_is_offered_only_where_it_is_named(agents: Agents) -> None:
    models = json.loads(agents.printed("opencode"))["provider"]["mlx-stack"]["models"]
    windows = {name: one["limit"]["context"] for name, one in models.items()}
    assert windows == {"auto": 8192, "fast": 8192, "big": 131072}
    models = yaml.safe_load(agents.printed("continue", "--model", "cloud"))["models"]
    assert [one["name"] for one in models] == ["cloud", "fast", "big"]


@pytest.mark.parametrize(
    ("server", "variable"),
    [("{}", "LITELLM_MASTER_KEY"), ("{api_keys: [sk-secret]}", "MLX_STACK_KEY")],
)
@pytest.mark.parametrize("key", ["", "sk-1"])
def test_a_key_is_named_and_never_printed(
    server: str, variable: str, key: str, agents: Agents
) -> None:
    agents.typed.write(f"server: {server}")
    given = {variable: key} if key else {}
    expected = key or "local"
    assert exported(agents.printed("openai"), **given)["OPENAI_API_KEY"] == expected
    claude = exported(agents.printed("claude-code"), **given)
    assert claude["ANTHROPIC_AUTH_TOKEN"] == expected
    codex = tomllib.loads(agents.printed("codex"))
    assert codex["model_providers"]["mlx-stack"]["env_key"] == variable
    assert agents("claude-code", "--write", "--yes").code == 0
    helper = json.loads((agents.home / ".claude/settings.json").read_text())["apiKeyHelper"]
    env = {"PATH": "/usr/bin:/bin", **given}
    ran = subprocess.run(["sh", "-c", helper], env=env, capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == expected
    for one in CLIENTS:
        assert "sk-" not in agents.printed(one.name)


@pytest.mark.parametrize("client", [one for one in CLIENTS if one.file], ids=lambda one: one.name)
def test_it_is_written_where_the_client_looks_and_taken_back(
    client: Client, agents: Agents
) -> None:
    file = agents.home / client.file
    assert agents(client.name, "--write", "--yes").code == 0
    assert "4200" in file.read_text()
    assert file.stat().st_mode & 0o777 == 0o600
    assert agents(client.name, "--undo", "--yes").code == 0
    assert [one for one in file.parent.iterdir() if one.name.startswith(file.name)] == []


def test_it_asks_first(agents: Agents) -> None:
    file = agents.home / ".claude" / "settings.json"
    answers = iter(["n", "", EOFError, "y"])  # EOFError: nobody is there to be asked

    def answer(_: str) -> str:
        given = next(answers)
        if isinstance(given, str):
            return given
        raise given

    agents.typed.monkeypatch.setattr("builtins.input", answer)
    for _ in range(3):
        ran = agents("claude-code", "--write")
        assert (ran.code, file.exists()) == (1, False)
        assert '+    "ANTHROPIC_MODEL": "auto",' in ran.out
    assert agents("claude-code", "--write").code == 0
    assert file.exists()


def test_the_first_backup_counts_and_links_stay(agents: Agents) -> None:
    mine = '{\n  "env": {\n    "MINE": "1"\n  }\n}\n'
    real = agents.typed.write(mine, "dotfiles/claude.json")
    real.chmod(0o640)
    link = agents.home / ".claude" / "settings.json"
    link.parent.mkdir()
    link.symlink_to(real)
    assert agents("claude-code", "--write", "--yes").code == 0
    assert agents("claude-code", "--write", "--yes", "--model", "big").code == 0
    assert json.loads(real.read_text())["env"]["ANTHROPIC_MODEL"] == "big"
    assert link.is_symlink() and real.stat().st_mode & 0o777 == 0o640
    assert agents("claude-code", "--undo", "--yes").code == 0
    assert real.read_text() == mine and link.is_symlink()
    ran = agents("claude-code", "--undo", "--yes")
    assert (ran.code, "nothing was written" in ran.err) == (1, True)


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        (["claude"], "unknown client `claude`; did you mean `claude-code`?"),
        (["codex", "--model", "bigg"], "unknown tier `bigg`; did you mean `big`?"),
        (["openai", "--write", "--yes"], "paste the lines instead"),
        (["claude-code", "--write", "--yes"], "stays as it is: it can't be read as JSON"),
    ],
)
def test_what_can_not_be_done_is_said(argv: list[str], said: str, agents: Agents) -> None:
    file = agents.typed.write("{ // mine\n}", ".claude/settings.json")
    ran = agents(*argv)
    assert (ran.code, said in ran.err) == (1, True)
    assert file.read_text() == "{ // mine\n}"


@pytest.mark.parametrize("name", ["claude-code", "codex"])
def test_the_page_shows_what_the_command_prints(name: str, agents: Agents) -> None:
    agents.typed.write('server: {api_keys: ["*"]}')
    assert f"\n{agents.printed(name)}```" in PAGE.read_text(encoding="utf-8")


def test_each_client_has_its_section() -> None:
    titles = {*sections(), "OpenAI's SDK, and all that is built on it"}
    assert {one.title for one in CLIENTS} <= titles
