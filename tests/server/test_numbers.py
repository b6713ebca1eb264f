"""The fast tier fails in each way once, and /metrics says exactly that."""

from __future__ import annotations

import re
from collections import Counter

from tests.server.asking import ask, ask_raw
from tests.server.calling import BAD, GOOD, TOOLS, calling
from tests.server.climbing import by_model
from tests.server.conftest import StartProxy
from tests.server.failing import SETTINGS, TEXT_CALL
from tests.server.looping import STUCK, endless
from tests.support.replies import ROLE, litellm_error, stream, text_chunks, text_stream
from tests.support.running_proxy import RunningProxy
from tests.support.scripted_server import CLOSE, SILENCE, Reply

COUNTERS = re.compile(r"mlx_stack_(\w+?)(?:_total)?(?:\{(.*)\})? (\S+)")
UNSTEADY = ("tokens", "tokens_saved")  # estimated where no usage came


async def counted(proxy: RunningProxy) -> dict[str, float]:
    """Every counter and every histogram's count, but what is zero: `name{tier,reason}`.

    The process's own are left out: what it takes is nothing that a script knows.
    """
    found = {}
    for line in (await proxy.client.get("/metrics")).text.splitlines():
        if "_bucket" in line or "_sum" in line or "_created" in line:
            continue
        if line.startswith(("#", "process_", "mlx_stack_tasks ")):
            continue
        match = COUNTERS.fullmatch(line)
        assert match is not None, line
        labels = ",".join(re.findall(r'"([^"]*)"', match[2] or ""))
        if float(match[3]) and match[1] not in UNSTEADY:
            found[f"{match[1]}{{{labels}}}"] = float(match[3])
    return found


async def test_each_failure_is_counted_once(start_proxy: StartProxy) -> None:
    proxy = await start_proxy(SETTINGS)
    well = by_model()  # the tool call that the tests' tools allow, or text

    async def serve(*replies: Reply, tools: bool = False) -> int:
        proxy.upstream.will(*replies, *[well] * 3)
        response = await ask(proxy, **({"tools": TOOLS} if tools else {}))
        proxy.upstream.script.clear()
        return response.status_code

    assert await serve(text_stream()) == 200
    assert await serve(calling(GOOD), tools=True) == 200
    # Repaired, rescued, and one retry that helps.
    assert await serve(calling('{"query": "quokka",}'), tools=True) == 200
    assert await serve(stream(text_chunks(TEXT_CALL)), tools=True) == 200
    assert await serve(calling(BAD), calling(GOOD), tools=True) == 200
    # What only the next tier helps with.
    assert await serve(calling(BAD), calling(BAD), calling(GOOD), tools=True) == 200
    assert await serve(endless({"content": STUCK})) == 200
    assert await serve(Reply.sse(SILENCE)) == 200
    assert await serve(*[litellm_error(500, "no")] * 2) == 200
    assert await serve(*[Reply.sse(ROLE, CLOSE)] * 2) == 200
    assert await serve(*[stream(text_chunks())] * 2) == 200
    assert await serve(*[Reply.sse(CLOSE)] * 2) == 200  # not a byte of its body
    # What is the client's own.
    assert await serve(litellm_error(400, "no such parameter")) == 400
    assert (await ask_raw(proxy, b"{")).status_code == 400
    assert (await proxy.client.get("/v1/files")).status_code == 599  # the script has no reply

    numbers = await counted(proxy)
    assert numbers.pop("budget_used_tokens{hour}") > 0
    assert numbers == {
        "budget_limit_tokens{hour}": 2_000_000,
        "requests{ok,fast}": 5,
        "requests{ok,standard}": 7,
        "requests{client_error,fast}": 1,
        "agent_requests{python-httpx,ok}": 12,
        "agent_requests{python-httpx,client_error}": 1,
        "refused{400}": 1,
        "passthrough{599}": 1,
        "attempts{ok,fast}": 5,
        "attempts{ok,standard}": 7,
        "attempts{tool_validation_failure,fast}": 3,
        "attempts{loop_detected,fast}": 1,
        "attempts{timeout,fast}": 1,
        "attempts{server_error,fast}": 6,
        "attempts{client_error,fast}": 1,
        "attempts{empty_response,fast}": 2,
        "retries{tool_validation_failure,fast}": 2,
        "retries{server_error,fast}": 3,
        "retries{empty_response,fast}": 1,
        "escalations{fast,tool_validation_failure,standard}": 1,
        "escalations{fast,loop_detected,standard}": 1,
        "escalations{fast,timeout,standard}": 1,
        "escalations{fast,server_error,standard}": 3,
        "escalations{fast,empty_response,standard}": 1,
        "guided_attempts{other,fast}": 2,
        "tool_call_failures{missing_required,fast}": 3,
        "tool_call_repairs{trailing_comma}": 1,
        "rescued_tool_calls{hermes_json}": 1,
        "loops{circuit_break,generation}": 1,
        "overhead_seconds_count{}": 13,
        "first_token_seconds_count{fast}": 13,
        "first_token_seconds_count{standard}": 7,
        "request_seconds_count{fast}": 6,
        "request_seconds_count{standard}": 7,
        "sessions{}": 1,
    }
    assert await kept(proxy) == {
        "tool_call_invalid": 3,
        "tool_call_repaired": 2,
        "loop_break": 1,
        "escalated": 7,
        "recovered": 8,
    }


async def kept(proxy: RunningProxy) -> dict[str, int]:
    """How many events of each kind."""
    found = (await proxy.client.get("/mlx-stack/events?limit=1000")).json()["events"]
    assert all(one["session"] and one["request_id"] and one["time"] for one in found)
    return dict(Counter(one["kind"] for one in found))
