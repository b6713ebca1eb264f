"""`mlx-stack-proxy init` and `check` before a real LiteLLM."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from mlx_stack_proxy.operator import cli
from mlx_stack_proxy.settings_source import load
from tests.faults.litellm import LiteLLM
from tests.support.messages import call_piece
from tests.support.replies import completion, stream, text_stream, with_role
from tests.support.scripted_server import Call, Reply, ScriptedServer, WhenWhole

CALL = call_piece("get_weather", '{"city": "Lima"}')


def model_server(call: Call) -> Reply:
    asked = call.json()
    if not asked.get("stream"):
        return Reply.json(completion({"content": "1"}, "length"))
    if "tools" in asked:
        return stream(with_role(CALL, finish="tool_calls"))
    return text_stream("1", " 2", " 3")


def test_init_before_a_real_litellm(
    litellm: LiteLLM,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("LITELLM_MASTER_KEY", litellm.key)
    assert cli.main(["init", "--base-url", litellm.url]) == 0
    settings = load("config.yaml", {})
    assert {name: tier.model for name, tier in settings.tiers.items()} == {
        "fast": "fast",
        "standard": "standard",
    }
    text = (tmp_path / "config.yaml").read_text(encoding="utf-8")
    for tier in ("fast", "standard"):  # where its server is: LiteLLM tells it, we were not told
        port = litellm.ports[tier]
        assert f"localhost:{port}" in text or f"127.0.0.1:{port}" in text
    assert cli.main(["check", "--config", "config.yaml", "--no-probe"]) == 0, (
        capsys.readouterr().out
    )


async def test_check_asks_the_tiers_through_a_real_litellm(
    litellm: LiteLLM,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("LITELLM_MASTER_KEY", litellm.key)
    file = tmp_path / "config.yaml"
    file.write_text(f"upstream: {{base_url: '{litellm.url}'}}\ntiers: {{fast: , standard: }}")
    server = ScriptedServer()
    server.port = litellm.ports["fast"]  # nobody serves the other tier
    async with server:
        server.always(WhenWhole(model_server))
        code = await asyncio.to_thread(cli.main, ["check", "--config", str(file)])
    out = capsys.readouterr().out
    assert code == 1
    for said in (
        "ok    tier fast: answers (",
        "ok    tier fast: streams (",
        "ok    tier fast: calls tools\n",
        "FAIL  tier standard: a one-token completion: status 500:",
    ):
        assert said in out, out
