"""Exchanges whose moments a socket can't hold still: a limit, a leave, a queue.

Whole exchanges, from the first attempt to the last byte: tests/server/test_escalation.py.
"""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import AsyncIterator
from typing import Any

import pytest

from mlx_stack_proxy.driver import live_rules
from mlx_stack_proxy.driver.driver import Driver
from mlx_stack_proxy.engine import deadlines, watch
from mlx_stack_proxy.engine.attempt import Attempt
from mlx_stack_proxy.engine.downstream import Downstream
from mlx_stack_proxy.engine.exchange import Exchange
from mlx_stack_proxy.engine.verdicts import Verdict
from mlx_stack_proxy.main import build_services
from mlx_stack_proxy.settings import Settings
from tests.engine.exchanges import client_request, exchange
from tests.support.fake_upstream import FOREVER, FakeResponse, FakeUpstream
from tests.support.replies import DONE, chunk, completion, data, with_role
from tests.support.running_proxy import proxy_config
from tests.support.waiting import settled

Json = dict[str, Any]
CHAIN = ("fast", "standard")
SEARCH = {
    "type": "function",
    "function": {
        "name": "search",
        "parameters": {
            "type": "object",
            "properties": {"query": {"type": "string"}},
            "required": ["query"],
        },
    },
}


def said(*deltas: Json, finish: str = "stop") -> list[Any]:
    """A stream's pieces."""
    return [*(data(one) for one in with_role(*deltas, finish=finish)), DONE]


def calling(arguments: str) -> list[Any]:
    function = {"name": "search", "arguments": arguments}
    return said(
        {"tool_calls": [{"index": 0, "id": "c", "function": function}]}, finish="tool_calls"
    )


GOOD = said({"content": "Hello"})
BAD_CALL, GOOD_CALL = calling("{}"), calling('{"query": "quokka"}')
HANGS: list[Any] = [data(chunk({"role": "assistant"})), FOREVER]
DEAD = (500, b'{"error": {"message": "gone"}}')


class Scripted(FakeUpstream):
    """Gives each call of a model the next of its replies, the last one again and again."""

    def __init__(self, replies: dict[str, list[Any]]) -> None:
        super().__init__()
        self.replies = {model: list(given) for model, given in replies.items()}
        self.asked: list[str] = []
        self.answers: list[FakeResponse] = []

    def answer(self, content: bytes) -> FakeResponse:
        model = json.loads(content)["model"]
        self.asked.append(model)
        left = self.replies[model]
        reply = left.pop(0) if len(left) > 1 else left[0]
        if isinstance(reply, Exception):
            raise reply
        if isinstance(reply, tuple):
            answer = FakeResponse([reply[1]], b"application/json", reply[0])
        else:
            answer = FakeResponse(list(reply))
        self.answers.append(answer)
        return answer


class Client:
    """One that streams or not, and may leave."""

    def __init__(self) -> None:
        self.status = 0
        self.headers: dict[str, str] = {}
        self.body = b""
        self.left = asyncio.Event()

    async def send(self, message: Any) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            self.headers = {n.decode(): v.decode() for n, v in message["headers"]}
        else:
            self.body += message["body"]

    async def receive(self) -> Json:
        await self.left.wait()
        return {"type": "http.disconnect"}


class Running:
    """A run that is on its way, and all that it works with."""

    def __init__(
        self, replies: dict[str, list[Any]], stream: bool, rules: Json, **asked: Any
    ) -> None:
        changes = {"reliability.escalation.chain": list(CHAIN), **rules}
        settings = Settings(**proxy_config("http://litellm.test", changes))
        self.upstream = Scripted(replies)
        self.services = build_services(settings, upstream=self.upstream)
        self.client = Client()
        request = client_request(stream=stream, tools=[SEARCH])
        self.exchange: Exchange = exchange(
            request, tiers=CHAIN, started=asyncio.get_running_loop().time(), **asked
        )
        self.task = asyncio.ensure_future(self._run())

    async def _run(self) -> str:
        await self.services.store.open()
        clock = asyncio.get_running_loop().time
        run = Driver(
            self.services,
            self.exchange,
            headers=[],
            our_key=True,
            downstream=Downstream(self.client.send, clock),
            receive=self.client.receive,
            arrived=clock(),
        )
        try:
            await run.run()
        finally:
            await self.services.store.close()
        return run.outcome

    async def outcome(self) -> str:
        async with asyncio.timeout(10):
            return await self.task

    async def until_asked(self, calls: int = 1) -> None:
        async with asyncio.timeout(10):
            while len(self.upstream.answers) < calls:  # noqa: ASYNC110
                await asyncio.sleep(0.001)


@pytest.fixture(autouse=True)
async def at_once(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[None]:
    monkeypatch.setattr(watch, "BEGIN_SECONDS", 0.0)
    monkeypatch.setattr(watch, "LEAST_SECONDS", 0.005)
    yield


RETRIES = {"reliability.tool_validation.max_retries": 1}
ONCE = {"reliability.escalation.max_attempts": 1}


@pytest.mark.parametrize("opinion", [DEAD, HANGS, BAD_CALL], ids=["dead", "hangs", "bad"])
async def test_a_doubted_reply_goes_out_where_no_better_comes(
    opinion: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A call without what it asks for may be meant: the next reply failed, so it is delivered."""
    monkeypatch.setattr(deadlines, "OPINION_SECONDS", 0.05)
    doubted = calling('{"query": ""}')
    one = Running({"fast": [doubted, opinion], "standard": [GOOD]}, False, RETRIES)
    assert await one.outcome() == "ok"
    assert one.upstream.asked == ["fast", "fast"]
    (choice,) = json.loads(one.client.body)["choices"]
    assert choice["message"]["tool_calls"][0]["function"]["arguments"] == '{"query": ""}'


async def test_a_client_that_leaves_before_the_next_step_takes_no_attempt_along(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Where the cloud's cap is settled, the store is awaited between an attempt and its step."""
    monkeypatch.setattr(live_rules, "following", lambda *_: asyncio.Event().wait())
    one = Running({"fast": [GOOD], "standard": [GOOD]}, False, {})
    await one.until_asked()
    async with asyncio.timeout(10):
        while not one.exchange.outcomes:  # noqa: ASYNC110
            await asyncio.sleep(0.001)
    one.client.left.set()
    assert await one.outcome() == "client_left"
    metrics = one.services.metrics.render(agents=False).decode()
    assert 'mlx_stack_attempts_total{result="ok",tier="fast"} 1.0' in metrics


PLACE = {"tiers.fast.max_concurrency": 1, "tiers.fast.queue_timeout": 0.02}


@pytest.mark.parametrize("wait", ["is too long", "ends too late", "ends well"])
async def test_a_place_in_the_queue_is_waited_for(wait: str) -> None:
    rules = {**PLACE, **({} if wait == "is too long" else {"tiers.fast.queue_timeout": 10})}
    asked = {"client_timeout": 0.0} if wait == "ends too late" else {}
    one = Running({"fast": [GOOD], "standard": [DEAD]}, False, {**rules, **ONCE}, **asked)
    ticket = one.services.queues.place("fast", "somebody", "")
    await ticket.__aenter__()
    await settled()
    if wait != "is too long":
        await ticket.__aexit__(None, None, None)
    outcome = await one.outcome()
    if wait == "ends well":
        assert (outcome, one.upstream.asked) == ("ok", ["fast"])
        return
    expected = ("all_tiers_failed", ["standard"]) if wait == "is too long" else ("tier_busy", [])
    assert (outcome, one.upstream.asked) == expected


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    ("reply", "outcome"), [(GOOD, "ok"), (BAD_CALL, "upstream_unavailable")], ids=["good", "bad"]
)
async def test_a_limit_reached_while_a_thread_judges_takes_no_good_reply(
    reply: list[Any], outcome: str, stream: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    judging, go_on = threading.Event(), threading.Event()

    def slowly(attempt: Attempt) -> Verdict | None:
        judging.set()
        go_on.wait(10)
        return settle(attempt)

    settle = Attempt.settle
    monkeypatch.setattr(Attempt, "settle", slowly)
    monkeypatch.setattr(Attempt, "is_slow", lambda attempt: True)
    one = Running({"fast": [reply], "standard": [GOOD]}, stream, {})
    await asyncio.to_thread(judging.wait, 10)
    (run,) = one.services.drivers
    run.end()
    go_on.set()
    assert await one.outcome() == outcome
    assert one.client.status == (200 if outcome == "ok" else 503)
    assert one.upstream.asked == ["fast"]
    assert one.exchange.record is not None and one.exchange.record.outcome == outcome


@pytest.mark.parametrize("stream", [False, True])
async def test_a_limit_reached_while_a_thread_parses_takes_no_whole_reply(
    stream: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    parsing, go_on = threading.Event(), threading.Event()

    def slowly(attempt: Attempt, given: Json) -> None:
        parsing.set()
        go_on.wait(10)
        take_completion(attempt, given)

    take_completion = Attempt.take_completion
    monkeypatch.setattr(Attempt, "take_completion", slowly)
    monkeypatch.setattr(Attempt, "is_slow_to_feed", lambda attempt, data: True)
    reply = (200, json.dumps(completion({"content": "Hello"})).encode())
    one = Running({"fast": [reply], "standard": [GOOD]}, stream, {})
    await asyncio.to_thread(parsing.wait, 10)
    (run,) = one.services.drivers
    run.end()
    go_on.set()
    assert await one.outcome() == "ok"
    assert one.upstream.asked == ["fast"]
    assert b"Hello" in one.client.body
