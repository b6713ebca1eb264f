"""`mlx-stack-proxy launch`: a client in this process's place, told all by variables and flags."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

import pytest

from mlx_stack_proxy.operator import cli
from tests.operator.agents import said
from tests.operator.conftest import Typed
from tests.support.ports import free_port
from tests.support.scripted_server import ScriptedServer

# What stands for a client: shows what it was started with, then does as its last word says.
PROGRAM = f"""\
#!{sys.executable}
import json, os, signal, sys
signal.signal(signal.SIGTERM, lambda *_: sys.exit(41))
print(json.dumps({{"argv": sys.argv[1:], "env": dict(os.environ)}}), flush=True)
if sys.argv[-1] == "wait":
    signal.pause()
sys.exit(7)
"""


@pytest.fixture
def home(tmp_path: Path) -> Path:
    for name in ("claude", "codex", "opencode", "qwen", "aider"):
        path = tmp_path / "bin" / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(PROGRAM)
        path.chmod(0o755)
    return tmp_path


async def started(home: Path, *words: str, **variables: str) -> asyncio.subprocess.Process:
    env = {"PATH": str(home / "bin"), "HOME": str(home), "PYTHONPATH": os.pathsep.join(sys.path)}
    return await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "mlx_stack_proxy", "launch", *words),
        env={**env, **variables},
        cwd=home,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )


async def launched(home: Path, *words: str, **variables: str) -> tuple[list[str], dict[str, str]]:
    """The client's arguments and environment."""
    process = await started(home, *words, **variables)
    out, err = await process.communicate()
    assert process.returncode == 7, err.decode()
    seen = json.loads(out)
    return seen["argv"], seen["env"]


def files(home: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in home.rglob("*") if path.is_file()}


async def test_claude_code_asks_us_whatever_its_own_file_says(
    home: Path, upstream: ScriptedServer
) -> None:
    (home / ".claude").mkdir()
    own = {"env": {"ANTHROPIC_BASE_URL": "https://gateway.example", "ANTHROPIC_MODEL": "opus"}}
    (home / ".claude" / "settings.json").write_text(json.dumps(own))
    before, url = files(home), said.running(upstream)
    words = ("claude-code", "--url", url, "--model", "big", "--", "-p", "--", "say hi")
    argv, env = await launched(home, *words, ANTHROPIC_API_KEY="sk-for-anthropic")
    assert argv[0] == "--settings" and argv[2:] == ["-p", "--", "say hi"]
    given = json.loads(argv[1])["env"]
    assert given["ANTHROPIC_BASE_URL"] == url and given["ANTHROPIC_API_KEY"] == ""
    assert given["ANTHROPIC_AUTH_TOKEN"] == "local"
    assert given.items() <= env.items()
    assert env["CLAUDE_CODE_MAX_CONTEXT_TOKENS"] == "131072"
    assert files(home) == before, "no file is changed, and none is made"


async def test_no_key_is_in_a_command_line(home: Path, upstream: ScriptedServer) -> None:
    url = said.running(upstream, key="own", key_needed=True)
    held = {
        "claude-code": "ANTHROPIC_AUTH_TOKEN",
        "qwen-code": "OPENAI_API_KEY",
        "aider": "AIDER_OPENAI_API_KEY",
        "codex": "MLX_STACK_KEY",
        "opencode": "MLX_STACK_KEY",
    }
    for client, variable in held.items():
        words = (client, "--url", url, "--model", "big")
        argv, env = await launched(home, *words, MLX_STACK_KEY="sk-secret")
        assert "sk-secret" not in " ".join(argv), client
        assert env[variable] == "sk-secret"
        if client == "claude-code":  # a token in the user's own file would win over the variable
            settings = json.loads(argv[1])
            assert settings["env"]["ANTHROPIC_AUTH_TOKEN"] == ""
            assert settings["apiKeyHelper"] == "printenv MLX_STACK_KEY"
    assert "{env:MLX_STACK_KEY}" in env["OPENCODE_CONFIG_CONTENT"]


async def test_signals_and_the_exit_code_are_the_clients(
    home: Path, upstream: ScriptedServer
) -> None:
    process = await started(home, "claude-code", "--url", said.running(upstream), "--", "wait")
    assert process.stdout is not None
    await process.stdout.readline()  # it runs
    process.send_signal(signal.SIGTERM)
    assert await process.wait() == 41


@pytest.mark.parametrize(
    ("words", "clients", "why"),
    [
        (["cline"], {}, "can't be started from here: `mlx-stack-proxy agents cline` prints"),
        (["claude-code"], {}, "Claude Code isn't installed: npm install -g @anthropic-ai/claude-"),
        (["codex"], {}, "13,000 tokens, more than auto's window of 8,192: ask for a larger"),
        (["claude"], {}, "did you mean `claude-code`?"),
        (["aider"], {"key": "own", "key_needed": True}, "first export MLX_STACK_KEY=…, with one"),
        (["aider"], {"key": "litellm", "key_needed": True}, "first export LITELLM_MASTER_KEY=…"),
        (["aider", "--model", "x"], {}, "unknown tier `x`"),
    ],
)
async def test_what_stands_in_the_way_is_said(
    words: list[str], clients: dict[str, Any], why: str, typed: Typed, upstream: ScriptedServer
) -> None:
    program = typed.write("#!/bin/sh\n", "bin/aider")
    program.chmod(0o755)
    typed.monkeypatch.setenv("PATH", str(program.parent))
    typed.monkeypatch.delenv("MLX_STACK_KEY", raising=False)
    url = said.running(upstream, **clients)
    ran = await typed.beside("launch", *words, "--url", url)
    assert (ran.code, ran.out) == (1, "")
    assert why in ran.said


def test_where_a_clients_own_arguments_go_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        cli.main(["launch", "claude-code", "-p", "Hello"])
    said_there = " ".join(capsys.readouterr().err.split())
    assert "unrecognized arguments: -p Hello; arguments for the client follow `--`" in said_there


async def test_a_foreign_server_names_no_variable_of_ours(
    home: Path, upstream: ScriptedServer
) -> None:
    """Where the address is neither ours nor configured, LiteLLM's key doesn't go there."""
    said.running(upstream, key="litellm", key_needed=True)
    port = upstream.url.rpartition(":")[2]
    process = await started(
        home, "aider", "--url", f"http://0.0.0.0:{port}", LITELLM_MASTER_KEY="sk-litellm"
    )
    out, err = await process.communicate()
    assert (process.returncode, out) == (1, b"") and b"export MLX_STACK_KEY" in err


async def test_without_a_proxy_nothing_is_started(home: Path) -> None:
    port = str(free_port())
    process = await started(home, "claude-code", MLX_STACK_SERVER__PORT=port)
    out, err = await process.communicate()
    assert (process.returncode, out) == (1, b"")
    assert f"no proxy answers at http://127.0.0.1:{port}: ".encode() in err
    assert b"start one with `mlx-stack-proxy serve`" in err
