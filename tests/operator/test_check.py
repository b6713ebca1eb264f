"""`mlx-stack-proxy check`: a line for each thing, and an exit code."""

from __future__ import annotations

import asyncio
import re
import socket
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from mlx_stack_proxy.operator import check, cli
from tests.support.replies import completion, litellm_error, stream, text_stream, with_role
from tests.support.scripted_server import Call, Reply, ScriptedServer, WhenWhole

MODELS = ("GET", "/v1/models")


@pytest.fixture(autouse=True)
def bare(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """No configuration and no key of whoever runs the tests."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("LITELLM_MASTER_KEY", raising=False)
    monkeypatch.delenv("MLX_STACK_CONFIG", raising=False)
    return tmp_path


@pytest.fixture
async def litellm() -> AsyncIterator[ScriptedServer]:
    async with ScriptedServer() as server:
        yield server


def config(
    folder: Path, base_url: str, more: str = "", tiers: str = "tiers: {fast: , standard: }"
) -> str:
    file = folder / "config.yaml"
    text = f"upstream: {{base_url: '{base_url}'}}\n{tiers}\n{more}"
    file.write_text(text, encoding="utf-8")
    return str(file)


def weather(arguments: str = '{"city": "Lima"}') -> dict[str, Any]:
    function = {"name": "get_weather", "arguments": arguments}
    return {"id": "call_1", "type": "function", "function": function}


def checked(
    file: str | None, capsys: pytest.CaptureFixture[str], **how: bool
) -> tuple[int, list[str]]:
    code = check.check(file, **{"probe": False, **how})
    out, err = capsys.readouterr()
    assert err == ""
    return code, out.replace("\n      ", " ").splitlines()


async def beside(
    server: ScriptedServer, file: str, capsys: pytest.CaptureFixture[str], **how: bool
) -> tuple[int, list[str]]:
    """Run the command in a thread, while this loop answers it."""
    code, lines = await asyncio.to_thread(checked, file, capsys, **how)
    return code, [line.replace(server.url, "URL") for line in lines]


async def test_all_is_well(
    bare: Path, litellm: ScriptedServer, capsys: pytest.CaptureFixture[str]
) -> None:
    assert await beside(litellm, config(bare, litellm.url), capsys) == (
        0,
        [
            f"ok    configuration: {bare}/config.yaml",
            "ok    LiteLLM at URL: reachable, key right, 2 models",
            "ok    tier fast: model 'fast' is known to LiteLLM",
            "ok    tier standard: model 'standard' is known to LiteLLM",
        ],
    )


async def test_a_tier_whose_model_litellm_does_not_have(
    bare: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    many = ("fast", *(f"m{number}" for number in range(9)))
    async with ScriptedServer(models=many) as litellm:
        code, lines = await beside(litellm, config(bare, litellm.url), capsys)
    assert code == 1
    assert lines[2:] == [
        "ok    tier fast: model 'fast' is known to LiteLLM",
        "FAIL  tier standard: model 'standard' is not among LiteLLM's: "
        "fast, m0, m1, m2, m3, m4, m5, m6, …",
        "→     set tiers.standard.model to one that it has, or add the model to LiteLLM's "
        "model_list",
    ]


async def test_nobody_there(bare: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with socket.socket() as taken:  # bound but not listening: nobody else gets the port meanwhile
        taken.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{taken.getsockname()[1]}"
        code, lines = await asyncio.to_thread(checked, config(bare, url), capsys)
    assert code == 1
    assert lines == [
        f"ok    configuration: {bare}/config.yaml",
        f"FAIL  LiteLLM at {url}: the connection was refused",
        "→     start it, or say in upstream.base_url where it is",
    ]


NOT_SET = "without a key ($LITELLM_MASTER_KEY is not set)"
SET = "($LITELLM_MASTER_KEY is set)"
REFUSALS = [
    (None, Reply.json({}, 401), f"answered status 401 when asked for its models {NOT_SET}"),
    ("", Reply.json({}, 500), f"answered status 500 when asked for its models {NOT_SET}"),
    ("k", Reply.json({}, 400), f"refused the key when asked for its models {SET}"),
    ("k", Reply.json({}, 403), f"refused the key when asked for its models {SET}"),
    ("k", Reply.json({}, 500), f"answered status 500 when asked for its models {SET}"),
    ("k", Reply.json(b""), f"answered status 200 when asked for its models {SET}"),
]


@pytest.mark.parametrize("refusal", REFUSALS)
async def test_litellm_refuses(
    refusal: tuple[str | None, Reply, str],
    bare: Path,
    litellm: ScriptedServer,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    key, reply, why = refusal
    if key is not None:
        monkeypatch.setenv("LITELLM_MASTER_KEY", key)
    litellm.routes[MODELS] = reply
    code, lines = await beside(litellm, config(bare, litellm.url), capsys)
    assert code == 1
    assert lines[1:] == [
        "ok    LiteLLM at URL: reachable",
        f"FAIL  LiteLLM at URL: {why}",
        "→     export LITELLM_MASTER_KEY=… with LiteLLM's master key, here and where the proxy "
        "runs",
    ]


async def test_a_refusal_where_no_variable_is_named(
    bare: Path, litellm: ScriptedServer, capsys: pytest.CaptureFixture[str]
) -> None:
    litellm.routes[MODELS] = Reply.json({}, 401)
    file = bare / "config.yaml"
    file.write_text(f"upstream: {{base_url: '{litellm.url}', api_key_env: null}}")
    code, lines = await beside(litellm, str(file), capsys)
    assert code == 1
    assert lines[-2].endswith("(upstream.api_key_env names no variable)")
    assert "upstream.api_key_env" in lines[-1]


async def test_without_a_file_the_defaults_are_checked(
    bare: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{taken.getsockname()[1]}"
        monkeypatch.setenv("MLX_STACK_UPSTREAM__BASE_URL", url)
        _, lines = await asyncio.to_thread(checked, None, capsys)
    assert lines[0] == "ok    configuration: no file, the defaults"


def test_every_mistake_of_the_configuration_has_a_line(
    bare: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = config(bare, "http://x", "sever: 1\nstream: {mode: life}\n")
    code, lines = checked(file, capsys)
    assert code == 1
    assert len(lines) == 3
    assert all(line.startswith(f"FAIL  {file}: ") for line in lines[:2])
    assert lines[2].startswith("→     docs/settings.md")
    assert "did you mean `server`?" in lines[0]


@pytest.mark.parametrize(
    ("answer", "line"),
    [
        (Reply.json({"level": "warning"}), "ok    memory pressure at HOST/: warning"),
        (Reply.json({"error": "not read yet"}, 503), "FAIL  memory pressure at HOST/: status 503"),
        (Reply.json({}), "FAIL  memory pressure at HOST/: no level of normal, warning, critical"),
        (None, "FAIL  memory pressure at HOST/: the connection was refused"),
    ],
)
async def test_a_host_that_is_to_tell_the_memory_pressure(
    answer: Reply | None,
    line: str,
    bare: Path,
    litellm: ScriptedServer,
    capsys: pytest.CaptureFixture[str],
) -> None:
    async with ScriptedServer() as host:
        more = f"reliability: {{memory_pressure: {{source: '{host.url}/'}}}}"
        if answer is None:
            await host.stop()
        else:
            host.always(answer)
        code, lines = await beside(litellm, config(bare, litellm.url, more), capsys)
    assert line in [one.replace(host.url, "HOST") for one in lines]
    assert lines[-1].startswith("→" if line.startswith("FAIL") else "ok")
    assert code == (0 if line.startswith("ok") else 1)


def answers(call: Call) -> Reply:
    """A tier that can do everything, whichever of the three questions it is."""
    body = call.json()
    if not body.get("stream"):
        return Reply.json(completion({"content": "1"}, "length"))
    if "tools" in body:
        return stream(with_role({"tool_calls": [{"index": 0, **weather()}]}, finish="tool_calls"))
    return text_stream("1", " 2", " 3")


async def test_each_tier_of_this_machine_is_asked(
    bare: Path, litellm: ScriptedServer, capsys: pytest.CaptureFixture[str]
) -> None:
    litellm.always(WhenWhole(answers))
    tiers = "tiers: {fast: {local: false}, standard: }"
    file = config(bare, litellm.url, tiers=tiers)
    code, lines = await beside(litellm, file, capsys, probe=True)
    assert code == 0
    kinds = [re.sub(r"[0-9.]+ s\b", "N s", line) for line in lines[4:]]
    assert kinds == [
        "note  tier fast: not on this machine, and not asked; --cloud does",
        "ok    tier standard: answers (N s)",
        "ok    tier standard: streams (6 chunks, the first after N s)",
        "ok    tier standard: calls tools",
    ]
    assert {call.json()["model"] for call in litellm.calls} == {"standard"}
    code, lines = await beside(litellm, file, capsys, probe=True, cloud=True)
    assert (code, len(lines)) == (0, 10)
    assert {call.json()["model"] for call in litellm.calls} == {"fast", "standard"}


async def test_a_tier_that_does_not_answer_is_a_failure(
    bare: Path, litellm: ScriptedServer, capsys: pytest.CaptureFixture[str]
) -> None:
    litellm.always(litellm_error(500, "Connection error. " + "x " * 40))
    code, lines = await beside(litellm, config(bare, litellm.url), capsys, probe=True)
    assert code == 1
    assert [line.partition(" x")[0] for line in lines[4:]] == [
        said
        for tier in ("fast", "standard")
        for said in (
            f"FAIL  tier {tier}: a one-token completion: status 500: Connection error.",
            "→     read LiteLLM's log and the model server's; is that server running?",
        )
    ]


async def test_lines_fit_a_terminal(
    bare: Path, litellm: ScriptedServer, capsys: pytest.CaptureFixture[str]
) -> None:
    litellm.always(litellm_error(500, "Connection error. " + "xyz " * 40))
    config(bare, litellm.url)
    await asyncio.to_thread(check.check, "config.yaml")  # by its short name: a path is not broken
    out = capsys.readouterr().out
    assert len(out.splitlines()) > 6
    assert all(len(line) <= 80 for line in out.splitlines())


def test_the_settings_alone(bare: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = config(bare, "http://x")
    assert cli.main(["check", "--settings", "--config", file]) == 0
    assert "  file     base_url: 'http://x'" in capsys.readouterr().out.splitlines()
    Path(file).write_text("sever: 1", encoding="utf-8")
    assert cli.main(["check", "--settings", "--config", file]) == 1
    assert capsys.readouterr().out.startswith("FAIL  ")
