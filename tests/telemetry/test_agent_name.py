"""Under which name an agent is counted."""

from __future__ import annotations

import pytest

from mlx_stack_proxy.telemetry.agent_name import MAX_CHARACTERS, agent_name

UUID = "0198f6c2-8f1e-7c3a-9d53-2b7f6b0c1a2d"


def named(key_label: str = "", **headers: str) -> str:
    given = {name.replace("_", "-"): value for name, value in headers.items()}
    return agent_name(given, key_label, shown=True)


@pytest.mark.parametrize(
    ("user_agent", "name"),
    [
        ("claude-cli/2.0.14 (external, cli)", "claude-code"),
        ("codex_cli_rs/0.46.0 (Debian 13; x86_64) xterm", "codex"),
        ("codex_exec/0.169.0 (Linux; x86_64) dumb (codex_exec; 0.169.0)", "codex"),
        ("opencode/1.0.2 ai-sdk/provider-utils/3.0", "opencode"),
        ("OpenAI/Python 1.109.1", "openai-python"),
        ("AsyncOpenAI/Python 1.109.1", "openai-python"),
        ("Mozilla/5.0 (X11; Linux x86_64)", "mozilla"),
        ("curl/8.14.1", "curl"),
        ("python-httpx/0.28.1", "python-httpx"),
        ("", "unnamed"),
        ("/", "unnamed"),
    ],
)
def test_what_the_user_agent_says(user_agent: str, name: str) -> None:
    assert named(user_agent=user_agent) == name


def test_what_says_more_comes_first() -> None:
    said = {"user_agent": "curl/8.14.1"}
    assert named("key-2", **said) == "curl"
    assert named("key-2") == "key-2"
    assert named(x_mlx_stack_session="nightly docs", **said) == "nightly-docs"
    assert named(x_mlx_stack_session=UUID, **said) == "curl"
    assert named(x_mlx_stack_session=UUID.replace("-", ""), **said) == "curl"
    assert named(x_mlx_stack_agent="Docs", x_mlx_stack_session="night", **said) == "Docs"


def test_it_is_short_and_printable() -> None:
    assert named(x_mlx_stack_agent="\x1b[31m<b>\u2028x") == "31m-b-x"
    assert len(named(x_mlx_stack_agent="a" * 500)) == MAX_CHARACTERS


def test_it_may_be_hidden() -> None:
    names = {agent_name({"x-mlx-stack-agent": n}, "", shown=False) for n in ("docs", "web")}
    assert len(names) == 2
    assert all(name.startswith("agent-") and "docs" not in name for name in names)
