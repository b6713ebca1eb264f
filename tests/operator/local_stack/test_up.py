from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO

import pytest
import yaml

from mlx_stack_proxy.litellm.settings_origin import OriginInside
from mlx_stack_proxy.operator.local_stack import children, up
from mlx_stack_proxy.operator.local_stack.tiers import LocalTier, demo_model
from tests.support.ports import free_port

from .conftest import mentioning, until

SCRIPTED = "tests.operator.local_stack.scripted_up"
REPOSITORY = Path(__file__).parents[3]

Process = subprocess.Popen[str]
StartUp = Callable[..., Process]


@pytest.fixture
def model(tmp_path: Path) -> Path:
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "config.json").write_text("{}")
    return folder


@pytest.fixture
def ports() -> list[str]:
    return [
        *("--port", str(free_port())),
        *("--litellm-port", str(free_port())),
        *("--model-port", str(free_port(2))),
    ]


@pytest.fixture
def start_up(tmp_path: Path, model: Path, ports: list[str]) -> Iterator[StartUp]:
    """Starts `up` with one tier and scripted children."""
    started: list[Process] = []

    def start(*options: str, **environment: str) -> Process:
        tier = ["--tier", f"standard={model}", "--tier", "fast="]
        buffered = {k: v for k, v in os.environ.items() if k != "PYTHONUNBUFFERED"}
        process = subprocess.Popen(
            [sys.executable, "-m", SCRIPTED, *tier, *ports, *options],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=REPOSITORY,
            env={**buffered, "HOME": str(tmp_path), **environment},
        )
        started.append(process)
        return process

    yield start
    for process in started:
        process.kill()
        process.communicate()


def read_to(stream: IO[str] | None, text: str) -> str:
    assert stream is not None
    read = ""
    for line in stream:
        read += line
        if text in line:
            return read
    raise AssertionError(f"it ended without {text!r}: {read}")


async def test_it_says_what_to_do_next_and_ends_when_told(
    start_up: StartUp, ports: list[str]
) -> None:
    process = start_up()
    said = read_to(process.stdout, "Ctrl-C")
    for name in ("litellm", "standard", "proxy"):
        assert re.search(
            rf"^  {name} +starting .*; log: ~/\.mlx-stack/run/logs/{name}\.log$", said, re.M
        )
        assert re.search(rf"^  {name} +ready +after [\d.]+ s$", said, re.M)
    url = f"http://127.0.0.1:{ports[1]}/v1"
    assert re.search(
        rf"^  curl -i {url}/chat/completions -H 'Content-Type: application/json' -d '\{{.*\}}'$",
        said,
        re.M,
    )
    assert re.search(r"^  \S+ demo --url \S+ --tier standard$", said, re.M)
    assert f"  export OPENAI_BASE_URL={url}\n  export OPENAI_API_KEY=local\n" in said
    assert re.search(r"^  \S+ launch claude-code --url \S+$", said, re.M)
    process.send_signal(signal.SIGINT)
    out, errors = process.communicate(timeout=30)
    assert (process.returncode, errors) == (0, "")
    assert out == "Stopping …\nAll stopped.\n"
    await until(lambda: not mentioning(f"{ports[1]}"))


def test_inside_there_is_no_proxy_and_clients_send_litellms_key(
    start_up: StartUp, ports: list[str], tmp_path: Path
) -> None:
    process = start_up("--inside")
    said = read_to(process.stdout, "Ctrl-C")
    assert set(re.findall(r"^  (\w+) +ready", said, re.M)) == {"litellm", "standard"}
    assert f"LiteLLM on :{ports[1]}" in said
    key = re.search(r"^  export OPENAI_API_KEY=(sk-\S+)$", said, re.M)
    assert key is not None
    assert f"-H 'Authorization: Bearer {key[1]}'" in said
    run = tmp_path / ".mlx-stack" / "run"
    litellm = yaml.safe_load((run / "litellm.yaml").read_text())
    assert litellm["litellm_settings"]["callbacks"] == [children.CALLBACK]
    given = OriginInside(run / "config.yaml").read()  # nothing in it is refused there
    assert (given.server.port, list(given.tiers)) == (int(ports[1]), ["standard"])
    assert key[1] not in (run / "config.yaml").read_text() + str(litellm)


def test_stopping_while_it_starts_is_no_failure(start_up: StartUp) -> None:
    process = start_up()
    read_to(process.stdout, "starting")
    process.send_signal(signal.SIGHUP)
    out, errors = process.communicate(timeout=30)
    assert (process.returncode, errors) == (0, "")
    assert out.endswith("Stopping …\nAll stopped.\n")


def test_a_child_that_fails_ends_it_all(start_up: StartUp) -> None:
    """The proxy starts while the tiers are warmed up, which is given up without a traceback."""
    out, errors = start_up(SCRIPTED_FAIL="proxy", SCRIPTED_HOLD="1").communicate(timeout=60)
    assert out.endswith("Stopping …\nAll stopped.\n")
    assert errors.startswith("proxy did not start: ended with exit code 3, after ")
    assert errors.endswith("logs/proxy.log:\n    it can't go on like this\n")


def test_a_reader_that_goes_away_stops_nothing(start_up: StartUp, tmp_path: Path) -> None:
    process = start_up()
    read_to(process.stdout, "starting")
    assert process.stdout is not None
    process.stdout.close()
    config = tmp_path / ".mlx-stack" / "run" / "config.yaml"
    assert config.exists()
    process.send_signal(signal.SIGTERM)
    assert process.wait(timeout=30) == 0


def test_only_what_works_with_the_models_is_offered() -> None:
    demo = [LocalTier("fast", str(demo_model("fast")), 1, True, 8_192)]
    own = [LocalTier("fast", "/my/model", 1, True, 32_768)]
    small = [LocalTier("fast", "/my/model", 1, True, 1_024)]
    assert "launch" not in up._agents(demo, "launch {}") and "real model:" in up._agents(demo, "")
    assert up._agents(own, "launch {}").split()[-4:] == ["launch", "claude-code", "launch", "codex"]
    assert "with a larger window" in up._agents(small, "launch {}")
