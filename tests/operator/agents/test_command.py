"""`mlx-stack-proxy agents` as a user types it."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import tomllib
from pathlib import Path

import pytest
import yaml

from mlx_stack_proxy.operator.agents.clients import CLIENTS, Client
from tests.operator.agents import said
from tests.operator.conftest import Typed
from tests.support.ports import free_port
from tests.support.scripted_server import Reply, ScriptedServer

ROOT = Path(__file__).resolve().parents[3]
SECTIONS = re.findall(r"^## (.+)$", (ROOT / "docs/agents.md").read_text("utf-8"), re.M)
CONFIG = """\
server: {{port: {port}, api_keys: ["*"]}}
tiers:
  fast: {{context_window: 8192}}
  big: {{context_window: 131072}}
  cloud: {{local: false, context_window: 1000000}}
reliability: {{escalation: {{aliases: {{"claude-opus-*": big}}}}}}
"""


@pytest.fixture
def agents(typed: Typed) -> Agents:
    return Agents(typed)


class Agents:
    """Runs `agents` where no proxy runs; ``port``: the configured one."""

    def __init__(self, typed: Typed) -> None:
        self.typed = typed
        self.port = free_port()
        typed.write(CONFIG.format(port=self.port))

    def printed(self, *words: str) -> str:
        ran = self.typed("agents", *words)
        assert ran.code == 0, ran.err
        return ran.out

    def refused(self, *words: str) -> str:
        ran = self.typed("agents", *words)
        assert (ran.code, ran.out) == (1, "")
        return ran.said


def exported(text: str, **given: str) -> dict[str, str]:
    """The variables that a shell has after these lines."""
    env = {"PATH": "/usr/bin:/bin", **given}
    ran = subprocess.run(
        ["bash", "-ec", f"{text}\nenv -0"], env=env, capture_output=True, text=True, check=True
    )
    return dict(one.split("=", 1) for one in ran.stdout.split("\0") if one)


def codex_settings(command: str) -> dict[str, object]:
    """What Codex makes of a command's `-c` options."""
    words = shlex.split(command.replace("\\\n", ""))
    assert words[0] == "codex" and set(words[1::2]) == {"-c"}
    return tomllib.loads("\n".join(words[2::2]))


def test_all_are_listed(agents: Agents) -> None:
    lines = agents.printed().splitlines()
    assert [line.split()[0] for line in lines] == [one.name for one in CLIENTS]
    assert lines[0].endswith("mlx-stack-proxy launch claude-code")


def test_claude_code_gets_the_window_of_its_tier(agents: Agents) -> None:
    small = exported(agents.printed("claude-code"), ANTHROPIC_API_KEY="sk-for-anthropic")
    assert small["ANTHROPIC_BASE_URL"] == f"http://127.0.0.1:{agents.port}"
    assert small["ANTHROPIC_AUTH_TOKEN"] == "local" and small["ANTHROPIC_API_KEY"] == ""
    assert small["CLAUDE_CODE_MAX_CONTEXT_TOKENS"] == "8192"
    assert small["CLAUDE_CODE_MAX_OUTPUT_TOKENS"] == "2048"
    assert small["CLAUDE_CODE_SIMPLE"] == "1"
    big = exported(agents.printed("claude-code", "--model", "claude-opus-4-8"))
    assert big["ANTHROPIC_MODEL"] == "claude-opus-4-8"
    assert big["CLAUDE_CODE_MAX_CONTEXT_TOKENS"] == "131072"
    assert "CLAUDE_CODE_SIMPLE" not in big


def test_codex_gets_the_window(agents: Agents) -> None:
    found = codex_settings(agents.printed("codex", "--model", "big"))
    assert (found["model"], found["model_context_window"]) == ("big", 131_072)
    assert found["model_providers"] == {
        "mlx-stack": {
            "name": "mlx-stack",
            "base_url": f"http://127.0.0.1:{agents.port}/v1",
            "wire_api": "responses",
        }
    }


def test_a_prompt_that_cannot_fit_is_refused_in_one_sentence(agents: Agents) -> None:
    assert agents.refused("codex").endswith(
        "Codex's first request takes some 13,000 tokens, more than auto's window of 8,192: "
        "ask for a larger tier (--model big)"
    )


def test_a_tier_in_the_cloud_is_offered_only_where_it_is_named(agents: Agents) -> None:
    content = exported(agents.printed("opencode", "--model", "big"))["OPENCODE_CONFIG_CONTENT"]
    models = json.loads(content)["provider"]["mlx-stack"]["models"]
    windows = {name: one["limit"]["context"] for name, one in models.items()}
    assert windows == {"big": 131_072, "fast": 8192}
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
    assert f'env_key="{variable}"' in agents.printed("codex")
    for one in CLIENTS:
        assert "sk-" not in agents.printed(one.name)


async def test_what_runs_counts_and_not_the_file(agents: Agents, upstream: ScriptedServer) -> None:
    tiers = {"fast": {**said.TIERS["fast"], "context_window": 50_000}}
    url = said.running(upstream, tiers, aliases={}, max_output_tokens=1000)
    ran = await agents.typed.beside("agents", "claude-code", "--url", url)
    assert "# Windows in tokens: auto 50000, fast 50000." in ran.err
    found = exported(ran.out)
    assert found["ANTHROPIC_BASE_URL"] == url
    assert found["CLAUDE_CODE_MAX_CONTEXT_TOKENS"] == "50000"
    assert found["CLAUDE_CODE_MAX_OUTPUT_TOKENS"] == "1000"


def test_where_no_proxy_runs_that_is_said(agents: Agents) -> None:
    ran = agents.typed("agents", "claude-code")
    assert ran.err.startswith("# From the configuration, because no proxy answers at ")
    assert agents.refused("claude-code", "--url", "127.0.0.1:1").startswith("no proxy answers at")


@pytest.mark.parametrize(
    "answer",
    [
        {},
        {"tiers": {}, "chain": [], "clients": {}},
        said.status({"$(touch owned)": said.TIERS["fast"]}),
        said.status({"fast": {**said.TIERS["fast"], "context_window": "8192; touch owned"}}),
    ],
)
async def test_another_servers_answer_is_no_line_of_a_shell(
    answer: said.Json, agents: Agents, upstream: ScriptedServer
) -> None:
    upstream.routes["GET", "/mlx-stack/status"] = Reply.json(answer)
    ran = await agents.typed.beside("agents", "opencode", "--url", upstream.url)
    assert (ran.code, ran.out) == (1, "")
    assert f"what answers at {upstream.url} is not a proxy of this version" in ran.said


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        (["claude"], "unknown client `claude`; did you mean `claude-code`?"),
        (["codex", "--model", "bigg"], "unknown tier `bigg`; did you mean `big`?"),
    ],
)
def test_what_can_not_be_done_is_said(argv: list[str], said: str, agents: Agents) -> None:
    assert said in agents.refused(*argv)


@pytest.mark.parametrize("client", CLIENTS, ids=lambda one: one.name)
def test_each_client_has_its_section(client: Client) -> None:
    assert client.title in {*SECTIONS, "OpenAI's SDK, and everything built on it"}
