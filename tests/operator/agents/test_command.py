"""`mlx-stack-proxy agents` as a user types it."""

from __future__ import annotations

import json
import subprocess
import tomllib
from pathlib import Path

import pytest
import yaml

from mlx_stack_proxy.operator import cli
from mlx_stack_proxy.operator.agents.clients import CLIENTS
from tests.frameworks.page import PAGE, sections

CONFIG = """\
server: {port: 4200, api_keys: ["*"]}
tiers:
  fast: {context_window: 8192}
  big: {context_window: 131072}
  cloud: {local: false, context_window: 1000000}
reliability: {escalation: {aliases: {"claude-opus-*": big}}}
"""


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("MLX_STACK_CONFIG", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "config.yaml").write_text(CONFIG)
    return tmp_path


def printed(capsys: pytest.CaptureFixture[str], *argv: str) -> str:
    assert cli.main(["agents", *argv]) == 0
    return capsys.readouterr().out


def exported(text: str, **given: str) -> dict[str, str]:
    """The variables that a shell has after these lines."""
    env = {"PATH": "/usr/bin:/bin", **given}
    ran = subprocess.run(
        ["bash", "-ec", f"{text}\nenv -0"], env=env, capture_output=True, text=True, check=True
    )
    return dict(one.split("=", 1) for one in ran.stdout.split("\0") if one)


def test_all_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    lines = printed(capsys).splitlines()
    assert [line.split()[0] for line in lines] == [one.name for one in CLIENTS]
    assert "claude-code" in lines[0] and "~/.claude/settings.json" in lines[0]


def test_claude_code_is_told_the_windows_of_the_tier(capsys: pytest.CaptureFixture[str]) -> None:
    small = exported(printed(capsys, "claude-code"))
    assert small["ANTHROPIC_BASE_URL"] == "http://127.0.0.1:4200"
    assert small["ANTHROPIC_AUTH_TOKEN"] == "local"
    assert small["CLAUDE_CODE_MAX_CONTEXT_TOKENS"] == "8192"
    assert small["CLAUDE_CODE_MAX_OUTPUT_TOKENS"] == "2048"
    assert small["CLAUDE_CODE_SIMPLE"] == "1"
    big = exported(printed(capsys, "claude-code", "--model", "claude-opus-4-8"))
    assert big["ANTHROPIC_MODEL"] == "claude-opus-4-8"
    assert big["CLAUDE_CODE_MAX_CONTEXT_TOKENS"] == "131072"
    assert "CLAUDE_CODE_SIMPLE" not in big


def test_codex_is_told_the_window(capsys: pytest.CaptureFixture[str]) -> None:
    found = tomllib.loads(printed(capsys, "codex", "--model", "big"))
    assert (found["model"], found["model_context_window"]) == ("big", 131072)
    assert found["model_provider"] in found["model_providers"]


def test_a_tier_in_the_cloud_is_offered_only_where_it_is_named(
    capsys: pytest.CaptureFixture[str],
) -> None:
    models = json.loads(printed(capsys, "opencode"))["provider"]["mlx-stack"]["models"]
    windows = {name: one["limit"]["context"] for name, one in models.items()}
    assert windows == {"auto": 8192, "fast": 8192, "big": 131072}
    models = yaml.safe_load(printed(capsys, "continue", "--model", "cloud"))["models"]
    assert [one["name"] for one in models] == ["cloud", "fast", "big"]


@pytest.mark.parametrize(
    ("server", "variable"),
    [("{}", "LITELLM_MASTER_KEY"), ("{api_keys: [sk-secret]}", "MLX_STACK_KEY")],
)
@pytest.mark.parametrize("key", ["", "sk-1"])
def test_a_key_is_named_and_never_printed(
    server: str, variable: str, key: str, home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (home / "config.yaml").write_text(f"server: {server}")
    given = {variable: key} if key else {}
    expected = key or "local"
    assert exported(printed(capsys, "openai"), **given)["OPENAI_API_KEY"] == expected
    assert exported(printed(capsys, "claude-code"), **given)["ANTHROPIC_AUTH_TOKEN"] == expected
    codex = tomllib.loads(printed(capsys, "codex"))
    assert codex["model_providers"]["mlx-stack"]["env_key"] == variable
    assert cli.main(["agents", "claude-code", "--write", "--yes"]) == 0
    helper = json.loads((home / ".claude/settings.json").read_text())["apiKeyHelper"]
    env = {"PATH": "/usr/bin:/bin", **given}
    ran = subprocess.run(["sh", "-c", helper], env=env, capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == expected
    for one in CLIENTS:
        assert "sk-" not in printed(capsys, one.name)


@pytest.mark.parametrize("client", [one for one in CLIENTS if one.file], ids=lambda one: one.name)
def test_it_is_written_where_the_client_looks_and_taken_back(client: object, home: Path) -> None:
    name, file = client.name, home / client.file  # type: ignore[attr-defined]
    assert cli.main(["agents", name, "--write", "--yes"]) == 0
    assert "4200" in file.read_text()
    assert file.stat().st_mode & 0o777 == 0o600
    assert cli.main(["agents", name, "--undo", "--yes"]) == 0
    assert [one for one in file.parent.iterdir() if one.name.startswith(file.name)] == []


def test_it_asks_first(
    home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    file = home / ".claude" / "settings.json"
    answers = iter(["n", "", "y"])
    monkeypatch.setattr("builtins.input", lambda _: next(answers))
    for _ in range(2):
        assert cli.main(["agents", "claude-code", "--write"]) == 1
        assert not file.exists()
    assert '+    "ANTHROPIC_MODEL": "auto",' in capsys.readouterr().out
    assert cli.main(["agents", "claude-code", "--write"]) == 0
    assert file.exists()


def test_where_nobody_can_be_asked_nothing_is_written(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def nobody(_: str) -> str:
        raise EOFError

    monkeypatch.setattr("builtins.input", nobody)
    assert cli.main(["agents", "codex", "--write"]) == 1
    assert not (home / ".codex").exists()


def test_the_first_backup_counts_and_links_stay(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    real = home / "dotfiles" / "claude.json"
    real.parent.mkdir()
    mine = '{\n  "env": {\n    "MINE": "1"\n  }\n}\n'
    real.write_text(mine)
    real.chmod(0o640)
    (home / ".claude").mkdir()
    link = home / ".claude" / "settings.json"
    link.symlink_to(real)
    assert cli.main(["agents", "claude-code", "--write", "--yes"]) == 0
    assert cli.main(["agents", "claude-code", "--write", "--yes", "--model", "big"]) == 0
    assert json.loads(real.read_text())["env"]["ANTHROPIC_MODEL"] == "big"
    assert link.is_symlink() and real.stat().st_mode & 0o777 == 0o640
    assert cli.main(["agents", "claude-code", "--undo", "--yes"]) == 0
    assert real.read_text() == mine and link.is_symlink()
    assert cli.main(["agents", "claude-code", "--undo", "--yes"]) == 1
    assert "nothing was written" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        (["claude"], "unknown client `claude`; did you mean `claude-code`?"),
        (["codex", "--model", "bigg"], "unknown tier `bigg`; did you mean `big`?"),
        (["openai", "--write", "--yes"], "paste the lines instead"),
    ],
)
def test_what_can_not_be_done_is_said(
    argv: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["agents", *argv]) == 1
    assert said in capsys.readouterr().err


def test_a_file_that_does_not_fit_stays_as_it_is(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = home / ".claude" / "settings.json"
    file.parent.mkdir()
    file.write_text("{ // mine\n}")
    assert cli.main(["agents", "claude-code", "--write", "--yes"]) == 1
    assert file.read_text() == "{ // mine\n}"
    assert "stays as it is: it can't be read as JSON" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["claude-code", "codex"])
def test_the_page_shows_what_the_command_prints(
    name: str, home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (home / "config.yaml").write_text('server: {api_keys: ["*"]}')
    assert f"\n{printed(capsys, name)}```" in PAGE.read_text(encoding="utf-8")


def test_each_client_has_its_section() -> None:
    titles = {*sections(), "OpenAI's SDK, and all that is built on it"}
    assert {one.title for one in CLIENTS} <= titles
