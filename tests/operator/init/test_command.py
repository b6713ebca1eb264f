"""`mlx-stack-proxy init`: what it finds, says, writes and leaves alone."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Any

import pytest
import yaml

from mlx_stack_proxy.litellm.given import GivenInside
from mlx_stack_proxy.operator import check, cli
from mlx_stack_proxy.settings_source import load
from tests.support.ports import free_port
from tests.support.scripted_server import Reply, ScriptedServer

MODEL_INFO = ("GET", "/v1/model/info")
Json = dict[str, Any]


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty home, which is the working directory, too."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    for name in list(os.environ):
        if name.startswith(("MLX_STACK_", "LITELLM_")):
            monkeypatch.delenv(name)
    return tmp_path


def written(path: Path, data: Any) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(yaml.safe_dump(data), encoding="utf-8")
    return path


def info(name: str, model: str, base: str | None = None, **more: Any) -> Json:
    params = {"model": model} | ({"api_base": base} if base else {})
    return {"model_name": name, "litellm_params": params, "model_info": more}


def mlx_stack(home: Path, ports: dict[str, int]) -> Path:
    """The files that mlx-stack writes."""
    tiers = [{"name": n, "model": f"qwen-{n}", "port": p} for n, p in ports.items()]
    tiers[0]["vllm_flags"] = {"reasoning_parser": "qwen3"}
    written(home / ".mlx-stack" / "stacks" / "default.yaml", {"name": "default", "tiers": tiers})
    entries = [info(n, f"openai/qwen-{n}", f"http://localhost:{p}/v1") for n, p in ports.items()]
    entries += [info("premium", "openrouter/openai/gpt-4o")]
    return written(
        home / ".mlx-stack" / "litellm.yaml",
        {
            "model_list": entries,
            "router_settings": {"num_retries": 2},
            "general_settings": {"fallbacks": [{"fast": ["standard"]}]},
        },
    )


async def test_for_a_layer_inside_litellm(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    async with ScriptedServer(("small",)) as litellm:
        entries = [info("small", "openai/qwen-4b", nobody() + "/v1")]
        litellm.always(Reply.json({"data": entries}))
        assert await asyncio.to_thread(init, "--inside", "--base-url", litellm.url) == 0
    file = home / "config.yaml"
    settings = GivenInside(file).read()  # nothing in it is refused there
    assert (settings.server.port, list(settings.tiers)) == (litellm.port, ["fast"])
    said = capsys.readouterr().err
    callback = "callbacks: [mlx_stack_proxy.litellm.reliability]"
    for text in (said, file.read_text()):
        assert callback in text
    assert f"export MLX_STACK_CONFIG={file}" in said


def init(*arguments: str) -> int:
    return cli.main(["init", *arguments])


def nobody() -> str:
    return f"http://127.0.0.1:{free_port()}"


async def test_what_litellm_tells_becomes_a_file_that_passes_check(
    home: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LITELLM_MASTER_KEY", "sk-9")
    async with ScriptedServer() as server, ScriptedServer(("small", "large", "gpt")) as litellm:
        server.routes["GET", "/health"] = Reply.json({})
        entries = [
            info("large", "openai/qwen-30b", nobody() + "/v1", max_input_tokens=65_536),
            info("small", "openai/qwen-4b", server.url + "/v1"),
            info("gpt", "openai/gpt-4o"),
        ]
        asked: list[str | None] = []

        def told(call: Any) -> Reply:
            asked.append(call.header("authorization"))
            return Reply.json({"data": entries})

        litellm.always(told)
        # As clients are given it.
        assert await asyncio.to_thread(init, "--base-url", f"{litellm.url}/v1") == 0
        assert asked == ["Bearer sk-9"]
        settings = load("config.yaml", {})
        assert settings.upstream.base_url == litellm.url
        tiers = settings.tiers
        assert {n: (t.model, t.local, t.context_window) for n, t in tiers.items()} == {
            "fast": ("small", True, 32_768),
            "standard": ("large", True, 65_536),
            "premium": ("gpt", False, 32_768),
        }
        assert tiers["fast"].health_url == f"{server.url}/health"
        assert tiers["standard"].health_url is None
        out, err = capsys.readouterr()
        assert out == "" and "Wrote config.yaml. Next:" in err and "sk-9" not in err
        assert "export OPENAI_API_KEY=$LITELLM_MASTER_KEY" in err
        assert await asyncio.to_thread(check.check, "config.yaml", probe=False) == 0


def test_mlx_stacks_files_do_where_litellm_does_not_run(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    mlx_stack(home, {"standard": free_port(), "fast": free_port()})
    assert init("--base-url", nobody()) == 0
    tiers = load("config.yaml", {}).tiers
    assert list(tiers) == ["fast", "standard", "premium"]
    assert (tiers["standard"].reasoning, tiers["fast"].reasoning) == (True, False)
    text = (home / "config.yaml").read_text(encoding="utf-8")
    assert "from ~/.mlx-stack/litellm.yaml and\n# ~/.mlx-stack/stacks/default.yaml." in text
    err = capsys.readouterr().err
    said = " ".join(err.split())
    for sentence in (
        "the connection was refused.",
        "In ~/.mlx-stack/litellm.yaml, which is left as it is:",
        "router_settings.num_retries: 2: attempts multiply",
        "general_settings.fallbacks does nothing",
        "router_settings.disable_cooldowns is not true",
        "Tier premium: in the cloud.",
    ):
        assert sentence in said
    assert all(len(line) <= 80 for line in err.splitlines())


def test_the_stack_alone_and_the_one_called_default(home: Path) -> None:
    for name, at in (("old", 1), ("newest", 3), ("middle", 2)):
        stack = {"tiers": [{"name": name, "model": f"{name}-4b", "port": 9}]}
        file = written(home / ".mlx-stack" / "stacks" / f"{name}.yaml", stack)
        os.utime(file, (at, at))
    assert init("--base-url", nobody()) == 0
    assert load("config.yaml", {}).tiers["fast"].model == "newest"
    written(
        home / ".mlx-stack" / "stacks" / "default.yaml",
        {"tiers": [{"name": "standard", "model": "x", "port": 9}]},
    )
    assert init("--base-url", nobody(), "--force") == 0
    assert list(load("config.yaml", {}).tiers) == ["standard"]


async def test_litellms_list_says_which_models_there_are(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = written(
        home / "litellm.yaml",
        {
            "model_list": [
                info("fast", "openai/a", "http://localhost:1/v1", max_input_tokens=9_000),
                info("gone", "openai/b", "http://localhost:2/v1"),
            ],
            "general_settings": {"master_key": "os.environ/OTHER_KEY"},
        },
    )
    async with ScriptedServer(("fast", "new-8b")) as litellm:
        litellm.routes[MODEL_INFO] = Reply.json({"error": "admins only"}, 403)
        arguments = ("--base-url", litellm.url, "--litellm-config", str(file))
        assert await asyncio.to_thread(init, *arguments) == 0
    settings = load("config.yaml", {})
    assert settings.upstream.api_key_env == "OTHER_KEY"
    assert {n: (t.model, t.local) for n, t in settings.tiers.items()} == {
        "fast": ("fast", True),
        "standard": ("new-8b", False),
    }
    assert settings.tiers["fast"].context_window == 9_000
    err = " ".join(capsys.readouterr().err.split())
    assert "not listed by LiteLLM: gone." in err
    assert "Tier standard: nothing tells where it runs." in err


async def test_a_key_in_litellms_file_is_used_and_not_copied(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = written(
        home / "litellm.yaml",
        {"model_list": [info("fast", "openai/a")], "general_settings": {"master_key": "sk-secret"}},
    )
    async with ScriptedServer(("fast",)) as litellm:
        seen: list[str | None] = []

        def told(call: Any) -> Reply:
            seen.append(call.header("authorization"))
            return Reply.json({"data": []})

        litellm.always(told)
        arguments = ("--base-url", litellm.url, "--litellm-config", str(file))
        assert await asyncio.to_thread(init, *arguments) == 0
    assert seen == ["Bearer sk-secret"]
    err = capsys.readouterr().err
    assert "isn't copied" in err and "$LITELLM_MASTER_KEY" in err
    assert "sk-secret" not in err + (home / "config.yaml").read_text(encoding="utf-8")


async def test_litellm_that_refuses_to_tell(capsys: pytest.CaptureFixture[str]) -> None:
    async with ScriptedServer() as litellm:
        litellm.routes["GET", "/v1/models"] = Reply.json({}, 401)
        assert await asyncio.to_thread(init, "--base-url", litellm.url) == 1
    err = " ".join(capsys.readouterr().err.split())
    assert "answered status 401 when asked for its models without a key" in err
    assert "To do: export LITELLM_MASTER_KEY=…" in err
    assert "No model was found to make a tier of." in err
    assert "No model of this machine" not in err


def test_a_file_that_is_there_stays(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    mlx_stack(home, {"fast": 1})
    mine = home / "config.yaml"
    mine.write_text("server: {port: 1}", encoding="utf-8")
    assert init("--base-url", nobody()) == 1
    assert "--force" in capsys.readouterr().err
    assert init("--base-url", nobody(), "--dry-run") == 0
    shown = capsys.readouterr().out
    assert mine.read_text(encoding="utf-8") == "server: {port: 1}"
    assert init("--base-url", nobody(), "--output", "other.yaml") == 0
    assert "serve --config other.yaml" in capsys.readouterr().err
    assert init("--base-url", nobody(), "--force") == 0
    tiers = [yaml.safe_load(text)["tiers"] for text in (shown, mine.read_text(encoding="utf-8"))]
    assert tiers[0] == tiers[1]


def test_a_dry_run_writes_nothing(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    mlx_stack(home, {"fast": 1})
    before = sorted(home.rglob("*"))
    assert init("--base-url", nobody(), "--dry-run") == 0
    assert sorted(home.rglob("*")) == before
    assert "fast" in yaml.safe_load(capsys.readouterr().out)["tiers"]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--litellm-config", "missing.yaml"], "missing.yaml can't be read"),
        (["--litellm-config", "bad.yaml"], "bad.yaml is not valid YAML"),
        (["--base-url", "localhost:4000"], "--base-url: upstream.base_url"),
        (["--output", "no/such/folder.yaml", "--litellm-config", "good.yaml"], "can't be written"),
    ],
)
def test_what_cannot_be_used(
    arguments: list[str], said: str, home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (home / "bad.yaml").write_text("a: [", encoding="utf-8")
    written(home / "good.yaml", {"model_list": [info("fast", "openai/a")]})
    assert (
        init(*(["--base-url", nobody()] if "--base-url" not in arguments else []), *arguments) == 1
    )
    assert said in capsys.readouterr().err


def test_a_broken_stack_file_is_said_and_left_out(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    mlx_stack(home, {"fast": 1})
    (home / ".mlx-stack" / "stacks" / "default.yaml").write_text("a: [", encoding="utf-8")
    assert init("--base-url", nobody()) == 0
    assert "default.yaml is not valid YAML" in capsys.readouterr().err
