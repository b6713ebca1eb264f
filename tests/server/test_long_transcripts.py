"""Long transcripts that come again: whatever isn't read anew, the same is made of them."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import pytest

from mlx_stack_proxy.wire.blocks import BLOCK, Remembered
from tests.server.asking import CHAT, ask, checked_error
from tests.server.calling import BAD, GET_ORDER, GOOD, RULES, TOOLS, calling, getting
from tests.server.capturing import captured
from tests.server.conftest import StartProxy
from tests.server.failing import SETTINGS
from tests.support.replies import text_stream
from tests.support.running_proxy import RunningProxy
from tests.support.scripted_server import Reply, ScriptedServer

Json = dict[str, Any]
SYSTEM = {"role": "system", "content": "You are a careful assistant. 'messages': []"}
PICTURE = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}
STEPS = 3  # requests, each two messages longer; the first is read whole


def transcript(count: int, **odd: Json) -> list[Json]:
    """``odd``: other messages than these, by ``m`` and their place."""
    found = [SYSTEM, {"role": "user", "content": "Find the quokka; its order is 8874449."}]
    while len(found) < count:
        step = len(found)
        call = {"name": "search", "arguments": json.dumps({"query": f"quokka {step}"})}
        calls = [{"id": f"call_{step}", "type": "function", "function": call}]
        found.append({"role": "assistant", "content": f"Step {step}.", "tool_calls": calls})
        result = f"Result {step}: größer 日本 " + "word " * 20
        found.append({"role": "tool", "tool_call_id": f"call_{step}", "content": result})
    return [odd.get(f"m{place}", message) for place, message in enumerate(found[:count])]


def saying(text: str) -> Json:
    call = {"id": "call_4", "type": "function", "function": {"name": "search", "arguments": text}}
    return {"role": "assistant", "content": None, "tool_calls": [call]}


CIRCLES = {
    f"m{place}": (
        saying(GOOD)
        if place % 2 == 0
        else {"role": "tool", "tool_call_id": "call_4", "content": "No quokka."}
    )
    for place in range(20, 80)
}


@dataclass
class Case:
    """``replies``: to each request of a step, in their order. ``more``: of each request's body."""

    replies: list[Reply]
    settings: Json = field(default_factory=dict)
    odd: Json = field(default_factory=dict)
    more: Json = field(default_factory=lambda: {"tools": TOOLS})
    calls: int = 1  # of upstream, a step


CASES = {
    "text": Case([text_stream("Done.")]),
    "a call": Case([calling(GOOD)]),
    "without a system prompt": Case([calling(GOOD)], odd={"m0": {"role": "user", "content": "x"}}),
    "in the older form": Case(
        [text_stream("Done.")], more={"functions": [TOOLS[0]["function"]], "tools": None}
    ),
    "a correction": Case([calling(BAD), calling(GOOD)], {f"{RULES}.max_retries": 3}, calls=2),
    "a correction in the system prompt": Case(
        [calling(BAD), calling(GOOD)],
        {f"{RULES}.max_retries": 3, f"{RULES}.correction_role": "system"},
        calls=2,
    ),
    "another tier": Case([calling(BAD), calling(BAD), calling(GOOD)], SETTINGS, calls=3),
    "old arguments that nobody reads": Case([calling(GOOD)], odd={"m4": saying('{"query": ')}),
    "an id copied wrongly": Case(
        [getting("887449"), getting("8874449")],
        SETTINGS,
        more={"tools": [GET_ORDER]},
        calls=2,
    ),
    "a call told as text": Case(
        [text_stream('I will call {"name": "search", "arguments": {"query": "x"}} now.')] * 3,
        calls=1,
    ),
    "a budget that is set aside": Case(
        [calling(GOOD)],
        {
            "reliability.token_budget.per_session": 10_000_000,
            "reliability.token_budget.policy": "hard_stop",
        },
    ),
    "a picture long ago": Case(
        [calling(GOOD)],
        {"tiers.fast.images": False},
        {"m5": {"role": "tool", "tool_call_id": "call_4", "content": [PICTURE]}},
    ),
    "going in circles": Case(
        [calling(GOOD)], {"reliability.loop_detection.on_break": "error"}, CIRCLES, calls=0
    ),
    "nothing": Case([text_stream(""), calling(GOOD)], SETTINGS, calls=2),
}


async def made_of_it(case: Case, count: int, proxy: RunningProxy, upstream: ScriptedServer) -> Json:
    """All that is asked and answered, less what differs by the hour."""
    answers = []
    first = len(upstream.calls)
    for step in range(STEPS):
        upstream.will(*case.replies)
        messages = transcript(count + 2 * step, **case.odd)
        body = {"model": "fast", "messages": messages, **case.more}
        content = {name: value for name, value in body.items() if value is not None}
        response = await proxy.client.post(CHAT, json=content)
        answers.append((response.status_code, told(response), said(response)))
    calls = upstream.calls[first:]
    assert len(calls) >= STEPS * case.calls, "it isn't the case that it is to be"
    return {"asked": [call.json() for call in calls], "answers": answers}


def told(response: httpx.Response) -> Json:
    names = [name for name in response.headers if name.startswith("x-mlx-stack")]
    return {name: response.headers[name] for name in names if "id" not in name.split("-")}


def said(response: httpx.Response) -> Any:
    body = response.json()
    return body.get("choices") or body["error"]["type"]


MadeTwice = Callable[[Case, int], Awaitable[tuple[Json, Json]]]


@pytest.fixture
def made_twice(
    upstream: ScriptedServer, start_proxy: StartProxy, monkeypatch: pytest.MonkeyPatch
) -> MadeTwice:
    """What is made of a case; and what, where each message is looked at with every request."""
    found: list[int] = []

    def anew(self: Remembered[Any], name: int, messages: Any, start: int) -> Any:
        found.append(start)
        return self._of(messages[start : start + BLOCK])

    async def made(case: Case, count: int) -> tuple[Json, Json]:
        known = await made_of_it(case, count, await start_proxy(case.settings), upstream)
        monkeypatch.setattr(Remembered, "_of_block", anew)
        whole = await made_of_it(case, count, await start_proxy(case.settings), upstream)
        assert len(found) >= STEPS
        return known, whole

    return made


@pytest.mark.parametrize("count", [36, 70])  # messages of the first request
@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
async def test_the_same_is_made_of_them(case: Case, count: int, made_twice: MadeTwice) -> None:
    known, whole = await made_twice(case, count)
    assert known == whole


async def test_a_loop_is_seen(made_twice: MadeTwice) -> None:
    known, _ = await made_twice(CASES["going in circles"], 40)
    assert [status for status, *_ in known["answers"]] == [422] * STEPS


async def test_what_failed_is_kept_whole(
    tmp_path: Path, upstream: ScriptedServer, start_proxy: StartProxy
) -> None:
    observed = {"capture_failures": True, "capture_path": str(tmp_path / "failures")}
    proxy = await start_proxy({**SETTINGS, "observability": observed})
    case = Case([calling(BAD), calling(GOOD)], calls=2)
    await made_of_it(case, 40, proxy, upstream)
    records = await captured(tmp_path / "failures", 2 * STEPS)
    assert [one["request"]["messages"] for one in records] == [
        transcript(40 + 2 * step) for step in range(STEPS) for _ in range(2)
    ]


@pytest.mark.parametrize(
    ("last", "where"),
    [
        ({"content": "x"}, "messages[40].role"),
        ({"role": "user", "content": 7}, "messages[40].content"),
        ("text", "messages[40]"),
    ],
)
async def test_what_is_wrong_is_told_by_its_place(
    last: Any, where: str, upstream: ScriptedServer, proxy: RunningProxy
) -> None:
    upstream.will(text_stream("Done."))
    for messages in (transcript(40), [*transcript(40), last]):
        response = await ask(proxy, messages=messages)
    assert checked_error(response, 400, "invalid_request_error")["param"] == where
