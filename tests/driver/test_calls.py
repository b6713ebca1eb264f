"""What reads a call's reply, in the loop or in a thread."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import orjson
import pytest

from mlx_stack_proxy.driver import calls
from mlx_stack_proxy.engine import upstream_answers
from mlx_stack_proxy.engine.attempt import LONG_READ
from tests.engine.exchanges import attempt, exchange
from tests.support.fake_upstream import FakeResponse
from tests.support.replies import completion

# The client's side and the limits, where nobody asks them anything.
ANSWER: Any = SimpleNamespace(encoding=False)
LIMITS: Any = SimpleNamespace(note_bytes=lambda now: None)


class Endless:
    """A reply whose next piece is always there, and an attempt that a thread has to feed."""

    over = False
    first_byte: float | None = None

    def __init__(self) -> None:
        self.fed = 0
        self.cancel: Callable[[], object] | None = None

    async def next_bytes(self) -> bytes:
        assert self.fed < 100, "it was cancelled long ago"
        if self.cancel is not None and not self.fed:
            asyncio.get_running_loop().call_soon(self.cancel)  # while the thread runs
        return b"x"

    def is_slow_to_feed(self, data: bytes) -> bool:
        return True

    def feed(self, data: bytes) -> bytes:
        self.fed += 1
        return b""


async def test_a_cancellation_ends_a_reply_that_never_pauses() -> None:
    """Although each piece that a thread has begun is fed to its end."""
    endless: Any = Endless()
    reading = asyncio.ensure_future(calls._read_stream(endless, endless, ANSWER, LIMITS))
    endless.cancel = reading.cancel
    with pytest.raises(asyncio.CancelledError):
        await reading


async def test_a_long_json_answer_is_parsed_in_a_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    parsed_in: list[threading.Thread] = []
    completion_in = upstream_answers.completion_in

    def noting(body: bytes, **how: Any) -> Any:
        parsed_in.append(threading.current_thread())
        return completion_in(body, **how)

    monkeypatch.setattr(upstream_answers, "completion_in", noting)
    for text in ("word ", "word " * LONG_READ):
        one = exchange()
        read_into = attempt(one)
        body = orjson.dumps(completion({"content": text}))
        reply = FakeResponse([body], b"application/json")
        how = {"our_key": True, "answer": ANSWER, "limits": LIMITS}
        assert await calls.read(read_into, reply, one, **how) is None
        assert read_into.reply.choices[0].text == text
    short, long = parsed_in
    assert short is threading.main_thread() is not long


# Work on an attempt in a thread, and a cancellation that comes meanwhile


async def test_a_cancellation_waits_for_the_work_and_loses_no_result() -> None:
    begun, end = asyncio.Event(), threading.Event()
    loop = asyncio.get_running_loop()
    results: list[str] = []

    def work() -> str:
        loop.call_soon_threadsafe(begun.set)
        end.wait()
        return "bytes"

    async def read() -> None:
        results.append(await calls.in_thread(work))
        await asyncio.sleep(0)
        results.append("went on")

    task = asyncio.ensure_future(read())
    await begun.wait()
    task.cancel()
    await asyncio.sleep(0)
    assert not task.done()
    end.set()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert results == ["bytes"]
    assert task.cancelling() == 1


async def test_what_the_work_raises_is_raised() -> None:
    def work() -> None:
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        await calls.in_thread(work)
