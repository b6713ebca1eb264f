"""`mlx-stack-proxy init`: what it finds, says, writes and leaves alone."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
import yaml

from mlx_stack_proxy.litellm.settings_origin import OriginInside
from mlx_stack_proxy.settings_source import load
from tests.operator.conftest import Ran, Typed
from tests.support.ports import free_port
from tests.support.scripted_server import Reply, ScriptedServer

MODEL_INFO = ("GET", "/v1/model/info")
Json = dict[str, Any]


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


@pytest.fixture
def init(typed: Typed, nobody: str) -> Init:
    return Init(typed, nobody)


class Init:
    """Runs `init`, with a LiteLLM that nobody runs where none is named."""

    def __init__(self, typed: Typed, nobody: str) -> None:
        self.typed = typed
        self.home = typed.home
        self._nobody = nobody

    def __call__(self, *words: str) -> Ran:
        at = () if "--base-url" in words else ("--base-url", self._nobody)
        return self.typed("init", *at, *words)

    async def beside(self, litellm: ScriptedServer, *words: str) -> Ran:
        return await self.typed.beside("init", "--base-url", litellm.url, *words)


async def test_for_a_layer_inside_litellm(init: Init, nobody: str) -> None:
    async with ScriptedServer(("small",)) as litellm:
        entries = [info("small", "openai/qwen-4b", nobody + "/v1")]
        litellm.always(Reply.json({"data": entries}))
        ran = await init.beside(litellm, "--inside")
    assert ran.code == 0
    file = init.home / "config.yaml"
    settings = OriginInside(file).read()  # nothing in it is refused there
    assert (settings.server.port, list(settings.tiers)) == (litellm.port, ["fast"])
    callback = "callbacks: [mlx_stack_proxy.litellm.reliability]"
    for text in (ran.err, file.read_text()):
        assert callback in text
    assert f"export MLX_STACK_CONFIG={file}" in ran.err


async def test_what_litellm_tells_becomes_a_file_that_passes_check(init: Init, nobody: str) -> None:
    init.typed.monkeypatch.setenv("LITELLM_MASTER_KEY", "sk-9")
    async with ScriptedServer() as server, ScriptedServer(("small", "large", "gpt")) as litellm:
        server.routes["GET", "/health"] = Reply.json({})
        entries = [
            info("large", "openai/qwen-30b", nobody + "/v1", max_input_tokens=65_536),
            info("small", "openai/qwen-4b", server.url + "/v1"),
            info("gpt", "openai/gpt-4o"),
        ]
        litellm.always(Reply.json({"data": entries}))
        # As clients are given it.
        ran = await init.typed.beside("init", "--base-url", f"{litellm.url}/v1")
        assert ran.code == 0
        assert [call.header("authorization") for call in litellm.calls] == ["Bearer sk-9"]
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
        assert ran.out == "" and "Wrote config.yaml. Next:" in ran.err and "sk-9" not in ran.err
        assert "export OPENAI_API_KEY=$LITELLM_MASTER_KEY" in ran.err
        assert (await init.typed.beside("check", "--no-probe")).code == 0


def test_mlx_stacks_files_do_where_litellm_does_not_run(init: Init) -> None:
    mlx_stack(init.home, {"standard": free_port(), "fast": free_port()})
    ran = init()
    assert ran.code == 0
    tiers = load("config.yaml", {}).tiers
    assert list(tiers) == ["fast", "standard", "premium"]
    assert (tiers["standard"].reasoning, tiers["fast"].reasoning) == (True, False)
    text = (init.home / "config.yaml").read_text(encoding="utf-8")
    assert "from ~/.mlx-stack/litellm.yaml and\n# ~/.mlx-stack/stacks/default.yaml." in text
    for sentence in (
        "the connection was refused.",
        "In ~/.mlx-stack/litellm.yaml, which was not changed:",
        "router_settings.num_retries: 2: attempts multiply",
        "general_settings.fallbacks does nothing",
        "router_settings.disable_cooldowns is not true",
        "Tier premium: in the cloud.",
    ):
        assert sentence in ran.said
    assert all(len(line) <= 80 for line in ran.err.splitlines())


def test_the_stack_alone_and_the_one_called_default(init: Init) -> None:
    for name, at in (("old", 1), ("newest", 3), ("middle", 2)):
        stack = {"tiers": [{"name": name, "model": f"{name}-4b", "port": 9}]}
        file = written(init.home / ".mlx-stack" / "stacks" / f"{name}.yaml", stack)
        os.utime(file, (at, at))
    assert init().code == 0
    assert load("config.yaml", {}).tiers["fast"].model == "newest"
    default = init.home / ".mlx-stack" / "stacks" / "default.yaml"
    written(default, {"tiers": [{"name": "standard", "model": "x", "port": 9}]})
    os.utime(default, (2, 2))
    assert init("--force").code == 0
    assert list(load("config.yaml", {}).tiers) == ["standard"]


async def test_litellms_list_says_which_models_there_are(init: Init) -> None:
    file = written(
        init.home / "litellm.yaml",
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
        ran = await init.beside(litellm, "--litellm-config", str(file))
    assert ran.code == 0
    settings = load("config.yaml", {})
    assert settings.upstream.api_key_env == "OTHER_KEY"
    assert {n: (t.model, t.local) for n, t in settings.tiers.items()} == {
        "fast": ("fast", True),
        "standard": ("new-8b", False),
    }
    assert settings.tiers["fast"].context_window == 9_000
    assert "not listed by LiteLLM: gone." in ran.said
    assert "Tier standard: its location is unknown." in ran.said


async def test_a_key_in_litellms_file_is_used_and_not_copied(
    init: Init, litellm: ScriptedServer
) -> None:
    keys = {"master_key": "sk-secret"}
    model_list = [info("fast", "openai/a")]
    file = written(init.home / "litellm.yaml", {"model_list": model_list, "general_settings": keys})
    litellm.always(Reply.json({"data": []}))
    ran = await init.beside(litellm, "--litellm-config", str(file))
    assert ran.code == 0
    assert [call.header("authorization") for call in litellm.calls] == ["Bearer sk-secret"]
    assert "was not copied" in ran.said and "$LITELLM_MASTER_KEY" in ran.said
    assert "sk-secret" not in ran.err + (init.home / "config.yaml").read_text(encoding="utf-8")


async def test_litellm_that_refuses_to_tell(init: Init, litellm: ScriptedServer) -> None:
    litellm.routes["GET", "/v1/models"] = Reply.json({}, 401)
    ran = await init.beside(litellm)
    assert ran.code == 1
    assert "answered status 401 when asked for its models without a key" in ran.said
    assert "To do: export LITELLM_MASTER_KEY=…" in ran.said
    assert "No model was found for a tier." in ran.said
    assert "No model on this machine" not in ran.said


async def test_a_password_in_litellms_address_is_shown_nowhere(
    init: Init, litellm: ScriptedServer
) -> None:
    """But in the file, where the proxy needs it."""
    at = litellm.url.replace("//", "//ada:pass-1@")
    for words in ((), ("--force", "--inside")):
        ran = await init.typed.beside("init", "--base-url", at, *words)
        assert ran.code == 0 and "pass-1" not in ran.err + ran.out
        lines = (init.home / "config.yaml").read_text().splitlines()
        assert [line for line in lines if "pass-1" in line] == [f"  base_url: '{at}'"][len(words) :]


@pytest.mark.parametrize("words", [("init", "--base-url"), ("status", "--url"), ("demo", "--url")])
def test_a_password_in_an_address_where_nobody_is_is_not_shown(
    words: tuple[str, ...], typed: Typed
) -> None:
    ran = typed(*words, "http://ada:pass-1@127.0.0.1:1")
    assert ran.code == 1 and "http://…@127.0.0.1:1" in ran.said and "pass-1" not in ran.err


def test_a_file_that_is_there_stays(init: Init) -> None:
    mlx_stack(init.home, {"fast": 1})
    mine = init.typed.write("server: {port: 1}")
    before = sorted(init.home.rglob("*"))
    ran = init()
    assert (ran.code, "--force" in ran.err) == (1, True)
    shown = init("--dry-run")
    assert shown.code == 0
    assert mine.read_text(encoding="utf-8") == "server: {port: 1}"
    assert sorted(init.home.rglob("*")) == before
    assert init("--force").code == 0
    texts = [shown.out, mine.read_text(encoding="utf-8")]
    tiers = [yaml.safe_load(text)["tiers"] for text in texts]
    assert tiers[0] == tiers[1] and "fast" in tiers[0]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--litellm-config", "missing.yaml"], "missing.yaml can't be read"),
        (["--litellm-config", "bad.yaml"], "bad.yaml is not valid YAML"),
        (["--base-url", "localhost:4000"], "--base-url: upstream.base_url"),
        (["--litellm-config", "good.yaml"], "config.yaml: Is a dir"),
    ],
)
def test_what_cannot_be_used(arguments: list[str], said: str, init: Init) -> None:
    init.typed.write("a: [", "bad.yaml")
    (init.home / "config.yaml").mkdir()
    written(init.home / "good.yaml", {"model_list": [info("fast", "openai/a")]})
    ran = init("--force", *arguments)
    assert (ran.code, said in ran.said) == (2 if "--base-url" in arguments else 1, True)


def test_a_broken_stack_file_is_said_and_left_out(init: Init) -> None:
    mlx_stack(init.home, {"fast": 1})
    init.typed.write("a: [", ".mlx-stack/stacks/default.yaml")
    ran = init()
    assert (ran.code, "default.yaml is not valid YAML" in ran.said) == (0, True)
