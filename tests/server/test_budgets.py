"""Token budgets over real sockets: what is counted, who is warned, who is refused."""

from __future__ import annotations

import asyncio
import re
import shlex
import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.server.asking import CHAT, ask, checked_error, payloads
from tests.server.conftest import StartProxy
from tests.server.counting import AGENT, OTHER, USED, budget, hard, session_of
from tests.support.replies import (
    DONE,
    END,
    ROLE,
    TEXT,
    chunk,
    completion,
    data,
    text_stream,
    usage_chunk,
)
from tests.support.running_proxy import RunningProxy
from tests.support.scripted_server import SILENCE, Reply, ScriptedServer
from tests.support.waiting import until

# What `text_stream` says it used is 9 + 4 tokens.


@pytest.fixture(autouse=True)
def upstream_is_well(upstream: ScriptedServer) -> None:
    upstream.always(lambda _: text_stream("Hello"))


async def test_hard_stop_refuses_before_any_call(start_proxy: StartProxy) -> None:
    proxy = await start_proxy(budget(per_session=USED, policy="hard_stop"))
    assert (await ask(proxy, AGENT, max_tokens=4)).status_code == 200
    response = await ask(proxy, AGENT, max_tokens=4)
    error = checked_error(response, 429, "budget_exceeded")
    assert (error["scope"], error["used"], error["limit"]) == ("session", USED, USED)
    assert response.headers["retry-after"] == str(error["retry_after"])
    assert response.headers["x-mlx-stack-attempts"] == "0"
    assert len(proxy.upstream.calls) == 1
    found = await proxy.client.get("/mlx-stack/events?kind=budget_exceeded&agent=agent-one")
    assert found.json()["total"] == 2  # it was reached, and a request refused
    assert (await ask(proxy, OTHER, max_tokens=4)).status_code == 200


COUNTED = {
    "prompt_tokens": 100,
    "completion_tokens": 4,
    "total_tokens": 104,
    "prompt_tokens_details": {"cached_tokens": 90},
}
LONG = "".join(map(chr, range(0x4E00, 0x4F00)))  # more tokens than the limit allows


@pytest.mark.parametrize(
    ("usage", "text", "changes", "used"),
    [
        (COUNTED, "Hello", {}, 14),
        (COUNTED, "Hello", budget(count_cached_prompt=True), 104),
        ({"prompt_tokens": 9, "completion_tokens": 200, "total_tokens": 209}, LONG, {}, 209),
    ],
    ids=["without what was cached", "with it", "of a server that keeps no limit"],
)
async def test_what_is_counted_is_upstreams_usage(
    usage: Any, text: str, changes: dict[str, Any], used: int, *, start_proxy: StartProxy
) -> None:
    proxy = await start_proxy(changes)
    whole = completion({"role": "assistant", "content": text}, "stop")
    proxy.upstream.will(Reply.json({**whole, "usage": usage}))
    assert (await ask(proxy, AGENT, max_tokens=5)).json()["usage"] == usage
    found = await session_of(proxy)
    assert (found["used"], found["estimated"]) == (used, 0)


CLOUD = "claude-in-the-cloud"  # a model of LiteLLM's that is no tier's
CHATTED = [ROLE, *(data(chunk({"content": f"word {n} "})) for n in range(100))]
ANTHROPICS = [
    data({"type": "message_start", "message": {"usage": {"input_tokens": 25}}}),
    *(data({"type": "content_block_delta", "delta": {"text": f"word {n}"}}) for n in range(100)),
]


@pytest.mark.parametrize(
    ("path", "model", "pieces", "least", "most"),
    [(CHAT, "fast", CHATTED, 150, 300), ("/v1/messages", CLOUD, ANTHROPICS, 125, 127)],
    ids=["chat", "passing through"],
)
async def test_a_client_that_leaves_has_used_what_was_generated(
    path: str, model: str, pieces: list[bytes], least: int, most: int, *, proxy: RunningProxy
) -> None:
    proxy.upstream.models = ("fast", CLOUD)
    proxy.upstream.will(Reply.sse(*pieces, SILENCE))
    asked = {"model": model, "stream": True, "messages": [{"role": "user", "content": "Go"}]}
    async with proxy.client.stream("POST", path, json=asked, headers=AGENT) as response:
        async for line in response.aiter_lines():
            if "word 99" in line:
                break
    call = await proxy.upstream.next_call()
    assert await call.left_within(2)

    async def used() -> int:
        found = await proxy.client.get("/mlx-stack/sessions/agent-one")
        return int(found.json().get("used", 0))

    assert least <= await until(used) <= most


async def test_sessions_are_listed_shown_and_reset(start_proxy: StartProxy) -> None:
    proxy = await start_proxy(budget(per_session=10))
    await ask(proxy, AGENT)
    await ask(proxy, OTHER)
    whole = (await proxy.client.get("/mlx-stack/sessions")).json()
    assert [one["used"] for one in whole["sessions"]] == [USED, USED]
    shown = (await proxy.client.get("/mlx-stack/sessions/agent-one")).json()
    assert (shown["used"], shown["limit"], shown["turns"], shown["tier"]) == (USED, 10, 1, "fast")
    assert (await proxy.client.get(f"/mlx-stack/sessions/{shown['session']}")).json() == shown
    gone = await proxy.client.delete("/mlx-stack/sessions/agent-one")
    assert gone.status_code == 200
    assert (await proxy.client.get("/mlx-stack/sessions/agent-one")).status_code == 404
    assert "x-mlx-stack-budget-warning" not in (await ask(proxy, AGENT)).headers
    page = (await proxy.client.get("/mlx-stack/sessions?limit=1&offset=1")).json()
    assert len(page["sessions"]) == 1


@pytest.mark.parametrize("streams", [True, False])
@pytest.mark.parametrize("wrong", [32_769, 10**400], ids=["beyond the window", "beyond all"])
async def test_a_count_that_cannot_be_is_replaced_by_an_estimate(
    wrong: int, streams: bool, start_proxy: StartProxy
) -> None:
    """An unsigned -1 used up everybody's budget. Further counts: tests/wire/test_usage_tail.py."""
    proxy = await start_proxy(hard(per_hour=10_000))
    last = data(usage_chunk({"prompt_tokens": "WRONG", "completion_tokens": 4}))
    last = last.replace(b'"WRONG"', str(wrong).encode())
    proxy.upstream.will(Reply.sse(ROLE, TEXT, END, last, DONE), text_stream("Hello"))
    options = {"stream_options": {"include_usage": True}} if streams else {}
    response = await ask(proxy, AGENT, stream=streams, max_tokens=50, **options)
    said = payloads(response.content)[:-1] if streams else [response.json()]
    (usage,) = [one["usage"] for one in said if one.get("usage")]
    assert all(0 < count < 100 for count in usage.values())
    found = await session_of(proxy)
    assert 0 < found["used"] == found["estimated"] < 1000
    assert (await ask(proxy, OTHER)).status_code == 200


# The examples of docs/budgets.md, run as they stand

PAGE = Path(__file__).parents[2] / "docs" / "budgets.md"
BLOCK = r"\n((?:(?!```).)*)```"
EXAMPLES = re.findall(
    rf"```yaml{BLOCK}\s*```sh{BLOCK}\s*```text{BLOCK}", PAGE.read_text(), re.DOTALL
)
POLICIES = [re.findall(r"policy: (\w+)", config)[0] for config, *_ in EXAMPLES]


def test_every_policy_has_an_example() -> None:
    assert POLICIES == ["warn_and_continue", "escalate", "hard_stop"]


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
async def test_an_example(example: tuple[str, str, str], start_proxy: StartProxy) -> None:
    config, commands, expected = example
    changes = dotted(yaml.safe_load(config))
    proxy = await start_proxy({**changes, "reliability.escalation.chain": ["fast", "standard"]})
    said = ""
    for command in commands.strip().splitlines():
        said = await run(command, proxy)
    for line in expected.strip().splitlines():
        assert line.lower() in said.lower(), f"{line!r} is not in\n{said}"
