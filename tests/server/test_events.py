"""`/mlx-stack/events`: found by what they are, and followed as a stream, on every store."""

from __future__ import annotations

import asyncio
import contextlib
import json
import signal
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from mlx_stack_proxy.engine.outcome import EVENT_KINDS
from mlx_stack_proxy.operator.process import Server
from mlx_stack_proxy.server import event_stream
from mlx_stack_proxy.state.store import StoreError
from tests.server.asking import ask, checked_error
from tests.server.conftest import StartProxy
from tests.server.counting import AGENT
from tests.support.replies import litellm_error, text_stream
from tests.support.running_proxy import RunningProxy
from tests.support.storing import add_events
from tests.support.waiting import until

Json = dict[str, Any]
URL = "/mlx-stack/events"
STREAM = {"Accept": "text/event-stream"}
HASH = "0123456789abcdef0123456789abcdef"
GENEROUS = 20  # seconds; what takes longer hangs


def event(kind: str = "escalated", session: str = HASH, **more: Any) -> Json:
    return {"time": time.time(), "kind": kind, "session": session, "tier": "fast", **more}


class Follower:
    """A client of the stream: its events in order, and each line that is no event."""

    def __init__(self, response: httpx.Response) -> None:
        self.response = response
        self.comments: list[str] = []
        self._lines = response.aiter_lines()

    async def next(self) -> Json:
        """The next event; its `id` line must be its number."""
        number: int | None = None
        async with asyncio.timeout(GENEROUS):
            async for line in self._lines:
                if line.startswith("id: "):
                    number = int(line[4:])
                elif line.startswith("data: "):
                    found: Json = json.loads(line[6:])
                    assert found["number"] == number
                    return found
                elif line:
                    self.comments.append(line)
        raise AssertionError("the stream has ended")

    async def kinds(self, count: int) -> list[str]:
        return [(await self.next())["kind"] for _ in range(count)]

    async def ends(self) -> None:
        async with asyncio.timeout(GENEROUS):
            assert [line async for line in self._lines if line.startswith("data")] == []


@pytest.fixture(autouse=True)
def asked_again_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(event_stream, "POLL_SECONDS", 0.01)


@contextlib.asynccontextmanager
async def following(
    proxy: RunningProxy, last: int | None = None, **query: Any
) -> AsyncIterator[Follower]:
    headers = {**STREAM, **({} if last is None else {"Last-Event-ID": str(last)})}
    async with proxy.client.stream("GET", URL, params=query, headers=headers) as response:
        assert response.status_code == 200, await response.aread()
        assert response.headers["content-type"].startswith("text/event-stream")
        yield Follower(response)


# Found

NOW = 1_780_000_000.0  # 2026-05-28T20:26:40Z
OTHER = "fed" * 10 + "fe"
KEPT = [
    {"time": NOW, "kind": "escalated", "session": HASH},
    {"time": NOW, "kind": "loop_break", "session": HASH},
    {"time": NOW + 1, "kind": "escalated", "session": OTHER},
    {"time": NOW + 1, "kind": "exhausted", "session": OTHER},
]
QUERIES: list[tuple[Json, list[int]]] = [
    ({}, [0, 1, 2, 3]),
    ({"session": HASH}, [0, 1]),
    ({"since": "2026-05-28T20:26:41Z"}, [2, 3]),
    ({"limit": 0}, []),
    ({"after": 0, "limit": 2}, [0, 1]),
    ({"before": 4, "limit": 2}, [1, 2]),
    ({"kind": "escalated", "session": OTHER[:12], "since": NOW, "limit": 5}, [2]),
]
REFUSED = [
    ("kind", "escalate"),
    ("since", "yesterday"),
    ("since", "-1"),
    ("since", "9" * 30),
    ("limit", "1001"),
    ("limit", "-1"),
    ("after", "x"),
    ("before", "x"),
    ("after", "9" * 400),
]


async def test_events_are_found(start_proxy: StartProxy) -> None:
    proxy = await start_proxy(wall_clock=lambda: NOW)
    await add_events(proxy.services.store, KEPT)
    for query, places in QUERIES:
        found = (await proxy.client.get(URL, params=query)).json()["events"]
        assert found == [{"number": place + 1, **KEPT[place]} for place in places], query


async def test_what_makes_no_sense_is_refused(proxy: RunningProxy) -> None:
    for param, value in REFUSED:
        for headers in ({}, STREAM):
            response = await proxy.client.get(URL, params={param: value}, headers=headers)
            assert checked_error(response, 400, "invalid_request_error")["param"] == param


async def test_a_session_by_the_clients_own_name(start_proxy: StartProxy) -> None:
    proxy = await start_proxy({"reliability.escalation.chain": ["fast", "standard"]})
    proxy.upstream.will(litellm_error(500, "no"), text_stream())
    response = await ask(proxy, AGENT)
    found = (await proxy.client.get(URL, params={"session": "agent-one"})).json()["events"]
    assert [one["kind"] for one in found] == ["escalated", "recovered"]
    assert found[0]["request_id"] == response.headers["x-mlx-stack-request-id"]
    response = await proxy.client.get(URL, params={"session": "agent-two"})
    checked_error(response, 404, "invalid_request_error")


# Followed


async def test_a_client_reads_on_where_it_was(proxy: RunningProxy) -> None:
    """Also where more has come than one page, and filters leave out most of it."""
    store = proxy.services.store
    await add_events(store, [event()])
    kinds = ["escalated", "loop_break"] * event_stream.PAGE
    await add_events(store, [event(kind) for kind in kinds])
    async with following(proxy, last=1) as client:
        assert await client.kinds(len(kinds)) == kinds, "none is missing, none comes twice"
    async with following(proxy, last=1, kind="loop_break") as client:
        numbers = [(await client.next())["number"] for _ in range(event_stream.PAGE)]
        assert numbers == list(range(3, len(kinds) + 2, 2))
        await add_events(store, [event("loop_break")])
        assert (await client.next())["number"] == len(kinds) + 2


@pytest.mark.parametrize("last", [None, 9000])
async def test_what_there_is_and_then_what_comes(last: int | None, proxy: RunningProxy) -> None:
    """Number 9000 was of a store whose file was deleted: nobody waits for all before it."""
    store = proxy.services.store
    await add_events(store, [event("escalated"), event("loop_break")])
    async with following(proxy, last=last) as client:
        assert await client.kinds(2) == ["escalated", "loop_break"]
        await add_events(store, [event("exhausted"), event("tier_degraded")])
        assert await client.kinds(2) == ["exhausted", "tier_degraded"]


async def test_a_store_that_fails_does_not_end_the_stream(
    proxy: RunningProxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, fails = proxy.services.store, asyncio.Event()
    ask_store = store.events

    async def events(query: Any) -> Any:
        if fails.is_set():
            raise StoreError("no disk")
        return await ask_store(query)

    monkeypatch.setattr(store, "events", events)
    counted = proxy.services.metrics.registry.get_sample_value
    async with following(proxy) as client:
        fails.set()
        await until(lambda: counted("mlx_stack_store_errors_total"))
        await add_events(store, [event("exhausted")])
        fails.clear()
        assert (await client.next())["kind"] == "exhausted"
    fails.set()
    response = await proxy.client.get(URL, headers=STREAM)
    checked_error(response, 503, "upstream_unavailable")


# Its bounds, and its end


async def test_signs_of_life(proxy: RunningProxy, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(event_stream, "KEEPALIVE_SECONDS", 0.02)
    async with following(proxy) as client:
        reading = asyncio.ensure_future(client.next())
        await until(lambda: client.comments.count(": keep-alive") > 1)
        await add_events(proxy.services.store, [event("exhausted")])
        assert (await reading)["kind"] == "exhausted"
    assert client.comments[0] == "retry: 1000"


async def test_only_so_many_may_follow(
    proxy: RunningProxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(event_stream, "MAX_FOLLOWERS", 1)
    async with following(proxy):
        response = await proxy.client.get(URL, headers=STREAM)
        checked_error(response, 503, "upstream_unavailable")
        assert (await proxy.client.get(URL)).status_code == 200
    await until(lambda: proxy.services.life.followers == 0)


async def test_who_comes_at_the_same_time_is_counted_too(
    proxy: RunningProxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(event_stream, "MAX_FOLLOWERS", 2)
    all_came, came = asyncio.Event(), 0
    newest = event_stream.newest_number

    async def slow(*args: Any) -> int:
        await all_came.wait()
        return await newest(*args)

    monkeypatch.setattr(event_stream, "newest_number", slow)

    async def status() -> int:
        nonlocal came
        reader, writer = await proxy.raw(
            f"GET {URL} HTTP/1.1\r\nHost: 127.0.0.1\r\nAccept: text/event-stream\r\n\r\n".encode()
        )
        came += 1
        line = await reader.readline()
        writer.transport.abort()
        return int(line.split()[1])

    asking = [asyncio.ensure_future(status()) for _ in range(5)]
    await until(lambda: came == 5 and proxy.services.life.followers >= 2)
    await until(lambda: sum(one.done() for one in asking) == 3)
    all_came.set()
    assert sorted(await asyncio.gather(*asking)) == [200, 200, 503, 503, 503]
    await until(lambda: proxy.services.life.followers == 0)


async def test_who_fails_to_follow_is_not_counted(
    proxy: RunningProxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fails(*_: Any) -> int:
        raise StoreError("gone")

    monkeypatch.setattr(event_stream, "newest_number", fails)
    assert (await proxy.client.get(URL, headers=STREAM)).status_code == 503
    assert proxy.services.life.followers == 0


async def test_who_takes_nothing_holds_up_nobody(proxy: RunningProxy) -> None:
    store, life = proxy.services.store, proxy.services.life
    head = f"GET {URL} HTTP/1.1\r\nHost: 127.0.0.1\r\nAccept: text/event-stream\r\n\r\n"
    reader, writer = await proxy.raw(head.encode())
    await reader.readuntil(b"\r\n\r\n")
    reader._transport.pause_reading()  # type: ignore[attr-defined]
    await until(lambda: life.followers == 1)
    large = {"detail": {"text": "x" * 100_000}}
    await add_events(store, [event(**large) for _ in range(90)])
    async with following(proxy, last=0) as client:
        assert await client.kinds(90) == ["escalated"] * 90
    writer.transport.abort()
    await until(lambda: life.followers == 0)


async def test_a_stop_ends_it_and_does_not_wait_for_it(
    proxy: RunningProxy,
) -> None:
    """A grace of 30 s is for replies; who follows is told to go at once."""
    server = proxy.server
    assert isinstance(server, Server)
    async with following(proxy) as client:
        server.handle_exit(signal.SIGTERM, None)
        await client.ends()
    await until(lambda: server.should_exit)


# What is told


def test_every_kind_is_documented() -> None:
    page = (Path(__file__).resolve().parents[2] / "docs" / "observability.md").read_text("utf-8")
    assert [kind for kind in EVENT_KINDS if f"| `{kind}` |" not in page] == []
