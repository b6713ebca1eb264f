"""The examples of docs/budgets.md, run as they stand."""

from __future__ import annotations

import asyncio
import re
import shlex
import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.server.conftest import StartProxy
from tests.support.replies import text_stream
from tests.support.running_proxy import RunningProxy
from tests.support.scripted_server import ScriptedServer

PAGE = Path(__file__).parents[2] / "docs" / "budgets.md"
BLOCK = r"\n((?:(?!```).)*)```"
EXAMPLES = re.findall(
    rf"```yaml{BLOCK}\s*```sh{BLOCK}\s*```text{BLOCK}", PAGE.read_text(), re.DOTALL
)
POLICIES = [re.findall(r"policy: (\w+)", config)[0] for config, *_ in EXAMPLES]


def test_every_policy_has_an_example() -> None:
    assert POLICIES == ["warn_and_continue", "escalate", "hard_stop", "hard_stop"]


def dotted(tree: dict[str, Any], path: str = "") -> dict[str, Any]:
    found = {}
    for key, value in tree.items():
        here = f"{path}{key}"
        found |= dotted(value, f"{here}.") if isinstance(value, dict) else {here: value}
    return found


async def run(command: str, proxy: RunningProxy) -> str:
    words = [
        word.replace("localhost:4100", f"127.0.0.1:{proxy.port}") for word in shlex.split(command)
    ]
    curl = await asyncio.create_subprocess_exec(*words, stdout=asyncio.subprocess.PIPE)
    out, _ = await curl.communicate()
    return out.decode()


@pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not there")
@pytest.mark.parametrize("example", EXAMPLES, ids=POLICIES)
async def test_an_example(
    example: tuple[str, str, str], upstream: ScriptedServer, start_proxy: StartProxy
) -> None:
    config, commands, expected = example
    changes = dotted(yaml.safe_load(config))
    proxy = await start_proxy({**changes, "reliability.escalation.chain": ["fast", "standard"]})
    upstream.always(lambda _: text_stream("Hello"))
    said = ""
    for command in commands.strip().splitlines():
        said = await run(command, proxy)
    for line in expected.strip().splitlines():
        assert line.lower() in said.lower(), f"{line!r} is not in\n{said}"
