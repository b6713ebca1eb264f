"""Token budgets over real sockets: what is counted, who is warned, who is refused."""

from __future__ import annotations

import asyncio
import json
import re
import shlex
import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.server.asking import ask, checked_error, payloads
from tests.server.conftest import StartProxy
from tests.server.counting import AGENT, BUDGET, OTHER, USED, budget, hard, session_of
from tests.support.replies import (
    DONE,
    END,
    ROLE,
    TEXT,
    TOP,
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


async def test_hard_stop_refuses_before_any_call(
    upstream: ScriptedServer, start_proxy: StartProxy
) -> None:
    proxy = await start_proxy(budget(per_session=USED, policy="hard_stop"))
    upstream.always(lambda _: text_stream("Hello"))
    assert (await ask(proxy, AGENT, max_tokens=4)).status_code == 200
    response = await ask(proxy, AGENT, max_tokens=4)
    error = checked_error(response, 429, "budget_exceeded")
    assert (error["scope"], error["used"], error["limit"]) == ("session", USED, USED)
    assert response.headers["retry-after"] == str(error["retry_after"])
    assert response.headers["x-mlx-stack-attempts"] == "0"
    assert len(upstream.calls) == 1
    found = await proxy.client.get("/mlx-stack/events?kind=budget_exceeded&agent=agent-one")
    assert found.json()["total"] == 2  # it was reached, and a request refused
    assert (await ask(proxy, OTHER, max_tokens=4)).status_code == 200


async def test_a_client_that_leaves_has_used_what_was_generated(
    upstream: ScriptedServer, start_proxy: StartProxy
) -> None:
    proxy = await start_proxy()
    words = [data(chunk({"content": f"word {n} "})) for n in range(100)]
    upstream.will(Reply.sse(ROLE, *words, SILENCE))
    async with proxy.client.stream(
        "POST",
        "/v1/chat/completions",
        json={"model": "fast", "stream": True, "messages": [{"role": "user", "content": "Go"}]},
        headers=AGENT,
    ) as response:
        async for line in response.aiter_lines():
            if "word 99" in line:
                break
    call = await upstream.next_call()
    assert await call.left_within(2)

    async def used() -> int:
        found = await proxy.client.get("/mlx-stack/sessions/agent-one")
        return int(found.json().get("used", 0))

    assert await until(used) > 150


async def test_cached_tokens_count_only_where_they_are_to(
    upstream: ScriptedServer, start_proxy: StartProxy
) -> None:
    usage = {
        "prompt_tokens": 100,
        "completion_tokens": 4,
        "prompt_tokens_details": {"cached_tokens": 90},
    }
    ending = data({**TOP, "object": "chat.completion.chunk", "choices": [], "usage": usage})
    for counted, expected in ((False, 14), (True, 104)):
        proxy = await start_proxy(budget(count_cached_prompt=counted))
        upstream.will(Reply.sse(ROLE, TEXT, END, ending, DONE))
        await ask(proxy, AGENT)
        assert (await session_of(proxy))["used"] == expected


async def test_budgets_of_one_key_and_one_tier(
    upstream: ScriptedServer, start_proxy: StartProxy
) -> None:
    proxy = await start_proxy(
        {
            f"{BUDGET}.policy": "hard_stop",
            f"{BUDGET}.per_key": {"sk-small": {"per_hour": USED, "max_output_tokens": 4}},
            f"{BUDGET}.per_tier": {"fast": {"max_output_tokens": 7}},
        }
    )
    upstream.always(lambda _: text_stream("Hello"))
    small = {"Authorization": "Bearer sk-small"}
    assert (await ask(proxy, small)).status_code == 200
    assert (await upstream.next_call()).json()["max_tokens"] == 4
    error = checked_error(await ask(proxy, small), 429, "budget_exceeded")
    assert error["scope"] == "key"
    assert "sk-small" not in str(error)
    await ask(proxy, {"Authorization": "Bearer sk-large"})
    assert (await upstream.next_call()).json()["max_tokens"] == 7


async def test_sessions_are_listed_shown_and_reset(
    upstream: ScriptedServer, start_proxy: StartProxy
) -> None:
    proxy = await start_proxy(budget(per_session=10))
    upstream.always(lambda _: text_stream("Hello"))
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


@pytest.mark.parametrize("off", ["disabled", "bypassed"])
async def test_a_limit_is_sent_without_the_budget_stage_too(
    off: str, upstream: ScriptedServer, start_proxy: StartProxy
) -> None:
    """mlx-lm's own limit is 512 tokens."""
    disabled = {"reliability.token_budget.enabled": False}
    proxy = await start_proxy(disabled if off == "disabled" else {"server.allow_bypass": True})
    upstream.always(text_stream("Hello"))
    headers = {} if off == "disabled" else {"X-MLX-Stack-Bypass": "budget"}
    await ask(proxy, headers)
    assert (await upstream.next_call()).json()["max_tokens"] == 16_384
    await ask(proxy, headers, max_completion_tokens=7)
    second = (await upstream.next_call()).json()
    assert (second.get("max_tokens"), second["max_completion_tokens"]) == (None, 7)


WRONG = (10**400, 2**64 - 1, 2**53, 32_769, -1, 5.5, "many", True)


@pytest.mark.parametrize("streams", [True, False])
@pytest.mark.parametrize("name", ["prompt_tokens", "completion_tokens", "total_tokens"])
async def test_a_count_that_cannot_be_is_replaced_by_an_estimate(
    name: str, streams: bool, upstream: ScriptedServer, start_proxy: StartProxy
) -> None:
    """An unsigned -1 used up everybody's budget, and ended the writing of the state file."""
    proxy = await start_proxy(hard(per_hour=10_000))
    usage = {"prompt_tokens": 9, "completion_tokens": 4, "total_tokens": 13}
    for wrong in WRONG if name != "total_tokens" else WRONG[:3]:
        last = data(usage_chunk({**usage, name: "WRONG"}))
        last = last.replace(b'"WRONG"', json.dumps(wrong).encode())
        upstream.will(Reply.sse(ROLE, data(chunk({"content": "Hello"})), END, last, DONE))
        options = {"stream_options": {"include_usage": True}} if streams else {}
        response = await ask(proxy, AGENT, stream=streams, max_tokens=50, **options)
        whole = (
            [one["usage"] for one in payloads(response.content)[:-1] if one.get("usage")]
            if streams
            else [response.json()["usage"]]
        )
        assert len(whole) == 1
        assert all(0 < count < 100 for count in whole[0].values())
    upstream.will(text_stream("Hello"))
    assert (await ask(proxy, OTHER)).status_code == 200
    found = await session_of(proxy)
    assert 0 < found["used"] == found["estimated"] < 1000


async def test_a_server_that_keeps_no_limit_is_believed_for_what_it_wrote(
    upstream: ScriptedServer, start_proxy: StartProxy
) -> None:
    proxy = await start_proxy()
    usage = {"prompt_tokens": 9, "completion_tokens": 200, "total_tokens": 209}
    message = {"role": "assistant", "content": "".join(map(chr, range(0x4E00, 0x4F00)))}
    upstream.will(Reply.json({**completion(message, "stop"), "usage": usage}))
    assert (await ask(proxy, AGENT, max_tokens=5)).json()["usage"] == usage
    found = await session_of(proxy)
    assert (found["used"], found["estimated"]) == (209, 0)


# The examples of docs/budgets.md, run as they stand

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
