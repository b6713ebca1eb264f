"""The end of an exchange whose client reads slowly, when a time limit interrupts a write."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from types import SimpleNamespace
from typing import Any

import pytest

from mlx_stack_proxy.driver.answer import Answer
from mlx_stack_proxy.driver.calls import read
from mlx_stack_proxy.engine.attempt import LONG_READ, Attempt
from mlx_stack_proxy.engine.downstream import Downstream
from mlx_stack_proxy.engine.steps import Fail, PassOn
from mlx_stack_proxy.errors import ProxyError
from mlx_stack_proxy.memory_pressure.probe import MemoryProbe
from mlx_stack_proxy.settings import MemoryPressureSettings
from tests.engine.exchanges import attempt, exchange
from tests.support.fake_upstream import FakeResponse
from tests.support.replies import DONE, chunk, data, text_chunks

ROLE, TEXT, END = (data(one) for one in text_chunks("all of it"))
FAILED = ProxyError(502, "all_tiers_failed", "no more")


class Client:
    """Takes what is sent while it is ``open``, else the sender waits."""

    def __init__(self) -> None:
        self.open = asyncio.Event()
        self.status = 0
        self.body = b""
        self.whole = False

    async def take(self, message: Any) -> None:
        await self.open.wait()
        if message["type"] == "http.response.start":
            assert not self.status, "two heads"
            self.status = message["status"]
            return
        assert self.status, "a body before its head"
        self.body += message["body"]
        self.whole = not message["more_body"]


def answering(client: Client) -> tuple[Answer, Attempt, bytes]:
    """An answer, and what is to go out of an attempt whose end is still held."""
    one = exchange()
    memory = MemoryProbe(MemoryPressureSettings(enabled=False), None, time.monotonic)
    answer = Answer(one, Downstream(client.take, time.monotonic), memory, False)
    running = attempt(one)
    return answer, running, running.feed(ROLE + TEXT + END + DONE)


async def interrupted(answer: Answer, out: bytes) -> None:
    """A time limit comes while it is being sent."""
    sending = asyncio.create_task(answer.send(out))
    await asyncio.sleep(0)
    sending.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await sending


async def test_text_whose_turn_a_time_limit_took_goes_out_with_the_end() -> None:
    client = Client()
    answer, running, out = answering(client)
    await interrupted(answer, out)
    client.open.set()
    await answer.deliver(running)
    assert client.body == ROLE + TEXT + END + DONE
    assert client.whole


async def test_it_goes_out_before_what_another_attempt_brings() -> None:
    client = Client()
    answer, running, out = answering(client)
    await interrupted(answer, ROLE)
    client.open.set()
    await answer.send(out.removeprefix(ROLE))
    await answer.deliver(running)
    assert client.body.startswith(ROLE + TEXT + END)
    assert client.body.endswith(DONE)


async def test_an_answer_to_pass_on_goes_into_a_stream_that_has_begun() -> None:
    client = Client()
    client.open.set()
    answer, _, _ = answering(client)
    answer.send_sign_of_life(time.monotonic())
    refused = PassOn(400, (), b'{"error": {"message": "no such thing"}}')
    await answer.send_error(refused)
    assert client.status == 200
    assert b'"message":"no such thing"' in client.body
    assert client.body.endswith(DONE)


async def test_where_not_even_the_head_is_out_a_failure_has_its_status() -> None:
    client = Client()
    answer, _, out = answering(client)
    await interrupted(answer, out)
    client.open.set()
    await answer.send_error(Fail(FAILED))
    assert client.status == 502
    assert client.body == FAILED.encoded()


async def test_an_answer_knows_while_a_thread_writes_its_next_bytes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    client = Client()
    client.open.set()
    answer, _, _ = answering(client)
    seen: list[tuple[bool, bool]] = []
    feed = Attempt.feed

    def noting(attempt: Attempt, data: bytes) -> bytes:
        seen.append((threading.current_thread() is threading.main_thread(), answer.encoding))
        return feed(attempt, data)

    monkeypatch.setattr(Attempt, "feed", noting)
    one = exchange()
    long_reply = FakeResponse([data(chunk({"content": "word " * LONG_READ})), END + DONE])
    limits: Any = SimpleNamespace(note_bytes=lambda now: None)
    how = {"our_key": True, "answer": answer, "limits": limits}
    assert await read(attempt(one), long_reply, one, **how) is None
    assert seen == [(False, True), (True, False)]
    assert not answer.encoding
