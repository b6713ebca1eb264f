"""Every command of the documentation is run as printed, or says why it can't be here.

In place of :4100 and :4000 stand the ports of a proxy and a scripted LiteLLM. `make docs-commands`
runs them all; without it only those that take no time are.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import signal
import sys
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml

from tests.docs.commands import ENDLESS, NOT_HERE, ROOT, Command, commands
from tests.server.conftest import StartProxy
from tests.support.replies import completion, text_stream
from tests.support.running_proxy import RunningProxy, proxy_config
from tests.support.scripted_server import Reply, ScriptedServer

COMMANDS = list(commands())
HERE = {one.text: one for one in COMMANDS if not one.why_not}
EVERYTHING = os.environ.get("DOCS_COMMANDS") == "all"
QUICK = [one for one in HERE.values() if re.match(r"curl (?!-N|.*:4110)", one.text)]
CHOSEN = list(HERE.values()) if EVERYTHING else QUICK
# Small enough that what a command shows holds events, and no other machine's memory counts.
CHANGES = {
    "server.api_keys": ["*"],
    "reliability.token_budget.per_session": 30,
    "reliability.memory_pressure.enabled": True,
    "observability.log_format": "console",
}
STREAMED = text_stream("Hello")
WHOLE = Reply.json(completion({"content": "Hello"}))
SEED = {"model": "fast", "messages": [{"role": "user", "content": "Hello"}]}
RECORD = {"request": SEED, "reply": {"choices": [{"index": 0, "message": {"content": "Hi"}}]}}
# All at once: a port of ours may begin as one that is printed.
_ADDRESS = re.compile(r"(?:127\.0\.0\.1|localhost):(\d+)")


@dataclass
class Place:
    """Where a command is run: its folder, its environment, and what is running there."""

    folder: Path
    upstream: ScriptedServer
    environment: dict[str, str]
    ports: dict[str, str]

    def printed(self, text: str) -> str:
        text = _ADDRESS.sub(self._ours, text)
        asked = (
            f"init --base-url http://127.0.0.1:{self.ports['4000']}"  # where :4000 is the default
        )
        return text.replace("mlx-stack-proxy init", f"mlx-stack-proxy {asked}")

    def _ours(self, printed: re.Match[str]) -> str:
        port = self.ports.get(printed[1])
        return printed[0] if port is None else f"127.0.0.1:{port}"

    async def start(self, text: str) -> asyncio.subprocess.Process:
        return await asyncio.create_subprocess_exec(
            "bash",
            "-o",
            "pipefail",
            "-c",
            self.printed(text),
            cwd=self.folder,
            env=self.environment,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            start_new_session=True,
        )


def test_a_port_of_ours_that_begins_as_a_printed_one_stays(
    tmp_path: Path, upstream: ScriptedServer
) -> None:
    place = Place(tmp_path, upstream, {}, {"4100": "40003", "4000": "51234"})
    printed = place.printed("curl localhost:4100/a 127.0.0.1:4000/b localhost:8080/c")
    assert printed == "curl 127.0.0.1:40003/a 127.0.0.1:51234/b localhost:8080/c"


@pytest.fixture
async def place(
    tmp_path: Path, upstream: ScriptedServer, start_proxy: StartProxy
) -> AsyncIterator[Place]:
    proxy = await start_proxy(CHANGES)
    upstream.always(lambda _: STREAMED)
    for _ in range(2):
        await _seed(proxy)
    folder, home, programs = (tmp_path / name for name in ("here", "home", "bin"))
    for one in (folder, home / ".mlx-stack" / "failures", programs):
        one.mkdir(parents=True)
    config = proxy_config(upstream.url, {**CHANGES, "server.port": proxy.port})
    (folder / "config.yaml").write_text(yaml.safe_dump(config))
    for file in (folder / "recorded.jsonl", home / ".mlx-stack/failures/failures.jsonl"):
        file.write_text(json.dumps(RECORD) + "\n")
    # An answer of status 400 or above is a failure, though curl shows it as any other.
    (home / ".curlrc").write_text('write-out = "%{stderr}status %{http_code}\\n"\n')
    program = programs / "mlx-stack-proxy"
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m mlx_stack_proxy "$@"\n')
    program.chmod(0o755)
    environment = {
        "PATH": f"{programs}:{os.environ['PATH']}",
        "HOME": str(home),
        "CURL_HOME": str(home),
        "PYTHONPATH": str(ROOT / "app"),
        "LITELLM_MASTER_KEY": "sk-of-the-tests",
        "PYTHONUNBUFFERED": "1",
    }
    ports = {"4100": str(proxy.port), "4000": upstream.url.rpartition(":")[2]}
    yield Place(folder, upstream, environment, ports)


async def _seed(proxy: RunningProxy) -> None:
    await proxy.client.post(
        "/v1/chat/completions", json=SEED, headers={"X-MLX-Stack-Session": "my-agent"}
    )


def prepare(place: Place, command: Command) -> None:
    """What a reader would have before this one command."""
    if "mlx-stack-proxy check" in command.text:  # its four questions to each of two tiers
        place.upstream.will(*(WHOLE, STREAMED, STREAMED, WHOLE) * 2)
    if "mlx-stack-proxy init" in command.text:
        (place.folder / "config.yaml").unlink()
    if "mlx-stack-proxy serve" in command.text:  # the port is taken by the proxy of the test
        place.environment["MLX_STACK_SERVER__PORT"] = "0"


@contextlib.asynccontextmanager
async def pressure_served(place: Place, command: Command) -> AsyncIterator[None]:
    """What answers on :4110, where a command asks there."""
    if "4110" not in command.text.partition("#")[0]:
        yield
        return
    serving = await place.start("mlx-stack-proxy pressure --serve")
    assert serving.stderr is not None
    try:
        await serving.stderr.readline()
        await _listening(4110)
        yield
    finally:
        os.killpg(serving.pid, signal.SIGINT)
        await serving.communicate()


def test_what_is_not_run_says_why() -> None:
    starts = [start for start, _ in NOT_HERE]
    assert [one.text for one in COMMANDS if "[--" in one.text] == []
    assert len(starts) == len(set(starts))
    assert len(HERE) > 30


@pytest.mark.parametrize("text", sorted({one.text for one in COMMANDS if one.why_not}))
def test_what_it_names_is_there(text: str) -> None:
    """Targets of the Makefile and modules, of commands that are not run."""
    if target := re.match(r"make ([a-z][a-z-]*)", text):
        makefile = (ROOT / "Makefile").read_text("utf-8")
        assert re.search(rf"^{target[1]}:", makefile, re.MULTILINE), target[1]
    if module := re.match(r"python -m ((?:tests|benchmarks)[\w.]*)", text):
        path = ROOT / module[1].replace(".", "/")
        assert path.with_suffix(".py").exists() or (path / "__main__.py").exists()


@pytest.mark.parametrize("command", CHOSEN, ids=lambda one: one.name)
async def test_it_runs_as_printed(command: Command, place: Place) -> None:
    prepare(place, command)
    async with pressure_served(place, command):
        running = await place.start(command.text)
        try:
            if ENDLESS.search(command.text):
                await _ends_when_told(running, "4110" in command.text)
                return
            out, said = await running.communicate()
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(running.pid, signal.SIGKILL)
    assert running.returncode == 0, (out + said).decode()
    statuses = re.findall(r"^status (\d+)$", said.decode(), re.MULTILINE)
    assert all(int(status) < 400 for status in statuses), (out + said).decode()
    assert "curl" not in command.text or statuses


async def _ends_when_told(running: asyncio.subprocess.Process, on_4110: bool) -> None:
    assert running.stdout is not None and running.stderr is not None
    first = [asyncio.create_task(one.readline()) for one in (running.stdout, running.stderr)]
    done, _ = await asyncio.wait(first, return_when=asyncio.FIRST_COMPLETED)
    said = b"".join(task.result() for task in done)
    assert running.returncode is None and said, said.decode()
    if on_4110:  # it says where it is to be before it is there
        await _listening(4110)
    os.killpg(running.pid, signal.SIGINT)
    for task in first:
        await task
    out, rest = await running.communicate()
    # 130 and the signal itself are what a shell knows as Ctrl-C.
    assert running.returncode in (0, 130, -signal.SIGINT), (out + rest).decode()


async def _listening(port: int) -> None:
    async with asyncio.timeout(30):
        while True:
            with contextlib.suppress(OSError):
                _, writer = await asyncio.open_connection("127.0.0.1", port)
                writer.close()
                return
            await asyncio.sleep(0.05)
