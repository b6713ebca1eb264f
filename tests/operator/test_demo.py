"""The demo's screen, with servers that answer as the demo model does."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import respx
from httpx import Response

from mlx_stack_proxy.operator import cli
from mlx_stack_proxy.operator.demo.command import judged, model_server
from mlx_stack_proxy.operator.local_stack.children import proxy_config, write_yaml
from mlx_stack_proxy.operator.local_stack.tiers import LocalTier
from tests.support.ports import free_port

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
        (completion(), "(nothing)", "announces a tool call"),
        (completion("stop", content="<function=get_order>"), "<function=get_order>", "text"),
        (completion("length", reasoning="Wait, wait"), "Wait, wait", "loops"),
    ],
)
def test_a_reply_is_judged_as_an_agent_finds_it(
    reply: dict[str, Any], written: str, wrong: str
) -> None:
    said, why = judged(reply, [TOOL])
    assert said == written
    assert wrong in why if wrong else why == ""


CHAT = "/v1/chat/completions"
REPORT = {
    **{"version": "0.1.0", "since": 1_780_000_000.0, "until": 1_780_000_060.0, "agent": "demo"},
    "said": [
        {"about": "replies", "lines": ["2 of 10 replies were broken; none reached an agent."]}
    ],
    "advice": [],
}


ASKED = ["demo", "--url", "http://proxy", "--direct", "http://model"]
GOOD = Response(200, json=call("get_order", '{"order_id": "7"}'))
BAD = Response(200, json=completion())


def told(**headers: str) -> Response:
    named = {f"x-mlx-stack-{name.replace('_', '-')}": value for name, value in headers.items()}
    return Response(200, content=GOOD.content, headers=named)


@pytest.mark.specification(183)
def test_both_replies_stand_side_by_side_with_what_the_proxy_did(
    respx_mock: respx.MockRouter, capsys: pytest.CaptureFixture[str]
) -> None:
    moved = told(
        tier="standard", escalated_from="fast", escalation_reason="loop_detected", retries="2"
    )
    respx_mock.post(f"http://model{CHAT}").side_effect = [BAD, BAD, *[GOOD] * 8]
    respx_mock.post(f"http://proxy{CHAT}").side_effect = [
        told(repairs="rescued", tier="fast"),
        moved,
        *[GOOD] * 8,
    ]
    respx_mock.get("http://proxy/mlx-stack/report").respond(json=REPORT)
    assert cli.main(ASKED) == 0
    out = capsys.readouterr().out
    assert "✗ announces a tool call but has none" in out
    assert "✓ call found in the text" in out
    assert "✓ standard took over from fast: loop" in out
    assert "retried 2 times" in out
    assert "Usable replies: 8 of 10 directly, 10 of 10 through the proxy." in out
    assert out.rstrip().endswith("replies    2 of 10 replies were broken; none reached an agent.")
    assert max(map(len, out.splitlines())) <= 80


def test_brief_prints_a_line_for_each_question(
    respx_mock: respx.MockRouter, capsys: pytest.CaptureFixture[str]
) -> None:
    respx_mock.post(f"http://model{CHAT}").side_effect = [BAD, *[GOOD] * 9]
    respx_mock.post(f"http://proxy{CHAT}").side_effect = [told(repairs="rescued"), *[GOOD] * 9]
    assert cli.main([*ASKED, "--brief", "--config", "nowhere.yaml"]) == 0  # it has an address
    head, *lines, total = capsys.readouterr().out.splitlines()
    assert head.split() == ["directly", "through", "the", "proxy"]
    assert [int(line[:2]) for line in lines] == list(range(1, 11))
    assert "✗ announces a tool call" in lines[0]
    assert "✓ call found in the text" in lines[0]
    assert total == "Usable replies: 9 of 10 directly, 10 of 10 through the proxy."


def test_each_question_is_a_session_of_its_own(respx_mock: respx.MockRouter) -> None:
    respx_mock.get("http://proxy/mlx-stack/report").respond(404)  # an older proxy
    chat = respx_mock.post(path=CHAT).mock(return_value=GOOD)
    assert cli.main(ASKED) == 0
    asked = [one.request for one in chat.calls]
    assert len(asked) == 20
    assert len({one.headers["x-mlx-stack-session"] for one in asked}) == 10
    assert {one.headers["x-mlx-stack-agent"] for one in asked} == {"demo"}
    assert len({json.dumps(json.loads(one.content)["tools"]) for one in asked}) == 1


def test_nobody_there_is_said_in_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    nobody = f"http://127.0.0.1:{free_port()}"
    assert cli.main(["demo", "--url", nobody, "--direct", nobody]) == 1
    assert f"nothing answers at {nobody}" in capsys.readouterr().err
    assert cli.main(["demo", "--url", nobody]) == 1
    assert "--direct http://127.0.0.1:4000" in capsys.readouterr().err


@pytest.mark.parametrize("status", [400, 401, 403, 404])
def test_a_wrong_key_or_model_is_said_in_a_line(
    status: int, capsys: pytest.CaptureFixture[str], respx_mock: respx.MockRouter
) -> None:
    respx_mock.post(f"http://model{CHAT}").respond(status, text="No connected db.")
    assert cli.main(ASKED) == 1
    said = f"http://model answers with status {status}: No connected db.; is the key in "
    assert capsys.readouterr().err.startswith(f"{said}LITELLM_MASTER_KEY right, and the model, ")


def test_a_reply_that_is_no_completion(
    capsys: pytest.CaptureFixture[str], respx_mock: respx.MockRouter
) -> None:
    respx_mock.post(f"http://model{CHAT}").respond(200, text="<html>")
    respx_mock.post(f"http://proxy{CHAT}").mock(return_value=GOOD)
    assert cli.main([*ASKED, "--brief"]) == 0
    assert "✗ no chat completion came: " in capsys.readouterr().out


def test_the_model_server_of_up_is_found_by_what_up_wrote(tmp_path: Path) -> None:
    file = tmp_path / "config.yaml"
    tiers = [LocalTier("fast", "/model", 8081, True)]
    write_yaml(file, proxy_config(tiers, 4100, 4000, tmp_path / "state"))
    found = model_server(file, "fast")
    assert found is not None
    assert (found.url, found.model) == ("http://127.0.0.1:8081", "default_model")
    assert model_server(file, "standard") is None
