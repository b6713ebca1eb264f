"""The demo's screen, with servers that answer as the demo model does."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from mlx_stack_proxy.operator import cli
from mlx_stack_proxy.operator.demo.command import judged, model_server
from mlx_stack_proxy.operator.local_stack.configs import proxy_config, write_yaml
from mlx_stack_proxy.operator.local_stack.tiers import LocalTier
from tests.support.ports import free_port
from tests.support.scripted_server import Reply, ScriptedServer

TOOL = {
    "type": "function",
    "function": {
        "name": "get_order",
        "parameters": {
            "type": "object",
            "properties": {"order_id": {"type": "string"}},
            "required": ["order_id"],
        },
    },
}


def completion(finish_reason: str = "tool_calls", **message: Any) -> dict[str, Any]:
    message = {"role": "assistant", "content": None, **message}
    return {"choices": [{"index": 0, "finish_reason": finish_reason, "message": message}]}


def call(name: str, arguments: str) -> dict[str, Any]:
    return completion(tool_calls=[{"function": {"name": name, "arguments": arguments}}])


@pytest.mark.parametrize(
    ("reply", "written", "wrong"),
    [
        (call("get_order", '{"order_id": "7"}'), 'get_order({"order_id": "7"})', ""),
        (call("get_order", '{"order_id": "7"'), 'get_order({"order_id": "7")', "break off"),
        (call("get_order", "{}"), "get_order({})", "missing required field"),
        (call("find", "{}"), "find({})", "does not exist"),
        (completion(), "(nothing)", "has no call"),
        (completion("stop", content="<function=get_order>"), "<function=get_order>", "a text"),
        (completion("length", reasoning="Wait, wait"), "Wait, wait", "goes round"),
    ],
)
def test_a_reply_is_judged_as_an_agent_finds_it(
    reply: dict[str, Any], written: str, wrong: str
) -> None:
    said, why = judged(reply, [TOOL])
    assert said == written
    assert wrong in why if wrong else why == ""


REPORT = {
    **{"version": "0.1.0", "since": 1_780_000_000.0, "until": 1_780_000_060.0, "agent": "demo"},
    "said": [
        {"about": "replies", "lines": ["2 of 10 replies were broken; none reached an agent."]}
    ],
    "advice": [],
}


async def test_both_replies_stand_side_by_side_with_what_the_proxy_did(
    upstream: ScriptedServer, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    good = call("get_order", '{"order_id": "7"}')
    mended = Reply.json(good, x_mlx_stack_repairs="rescued", x_mlx_stack_tier="fast")
    moved = Reply.json(
        good,
        x_mlx_stack_tier="standard",
        x_mlx_stack_escalated_from="fast",
        x_mlx_stack_escalation_reason="loop_detected",
        x_mlx_stack_retries="2",
    )
    upstream.will(Reply.json(completion()), mended, Reply.json(completion()), moved)
    upstream.otherwise = Reply.json(good)
    upstream.routes["GET", "/mlx-stack/report"] = Reply.json(REPORT)
    args = ["demo", "--url", upstream.url, "--direct", upstream.url]
    assert await asyncio.to_thread(cli.main, args) == 0
    out = capsys.readouterr().out
    assert "✗ says that it calls a tool, and has no" in out
    assert "✓ found in the text" in out
    assert "✓ fast was left for standard: loop" in out
    assert "asked again 2 times" in out
    assert "Of 10 questions 8 came out right directly, 10 through the proxy" in out
    assert out.rstrip().endswith("replies    2 of 10 replies were broken; none reached an agent.")
    assert max(map(len, out.splitlines())) <= 80


async def test_each_question_is_a_session_of_its_own(upstream: ScriptedServer) -> None:
    upstream.routes["GET", "/mlx-stack/report"] = Reply.json({}, status=404)  # an older proxy
    upstream.otherwise = Reply.json(call("get_order", '{"order_id": "7"}'))
    args = ["demo", "--url", upstream.url, "--direct", upstream.url]
    assert await asyncio.to_thread(cli.main, args) == 0
    calls = [await upstream.next_call() for _ in range(20)]
    assert len({one.header("x-mlx-stack-session") for one in calls}) == 10
    assert {one.header("x-mlx-stack-agent") for one in calls} == {"demo"}
    assert {json.dumps(one.json()["tools"]) for one in calls} == {
        json.dumps(calls[0].json()["tools"])
    }


def test_nobody_there_is_said_in_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    nobody = f"http://127.0.0.1:{free_port()}"
    assert cli.main(["demo", "--url", nobody, "--direct", nobody]) == 1
    assert f"nobody answers at {nobody}" in capsys.readouterr().err
    assert cli.main(["demo", "--url", nobody]) == 1
    assert "--direct http://127.0.0.1:4000" in capsys.readouterr().err


def test_the_model_server_of_up_is_found_by_what_up_wrote(tmp_path: Path) -> None:
    file = tmp_path / "config.yaml"
    tiers = [LocalTier("fast", "/model", 8081, True)]
    write_yaml(file, proxy_config(tiers, 4100, 4000, tmp_path / "state"))
    found = model_server(file, "fast")
    assert found is not None
    assert (found.url, found.model) == ("http://127.0.0.1:8081", "default_model")
    assert model_server(file, "standard") is None
